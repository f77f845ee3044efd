"""From the pods that show their processes to the condition Ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from support import gen
from support.observing import seen
from support.reconciling import FACTS, MONITORED, Answers
from triton_operator.api import names
from triton_operator.api.servers import IndexEntry, MemoryGrowth, RunningServer
from triton_operator.api.status import Condition, TritonModelStatus
from triton_operator.cluster.store import Store
from triton_operator.pods import Pod
from triton_operator.reconcile.read_snapshot import SnapshotReader
from triton_operator.status.assess import assess

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
LATER = datetime(2026, 12, 1, 15, 30, tzinfo=UTC)
AT = MemoryGrowth(LATER)


class Memory:
    """Polls that know the times of some pods. `tracked`: the pods that they poll."""

    def __init__(self, known: Mapping[str, MemoryGrowth | None], *, pending: bool = False) -> None:
        self.known, self.pending = known, pending
        self.tracked: set[str] = set()

    def track(self, _: str, servers: Iterable[RunningServer], __: None) -> Mapping[str, MemoryGrowth | None]:
        self.tracked = {server.pod for server in servers}
        return {pod: self.known.get(pod) for pod in self.tracked}

    def is_pending(self, _: str) -> bool:
        return self.pending

    def forget(self, _: str) -> None:
        self.tracked = set()


def shows_processes(obj: dict[str, Any]) -> None:
    """Adds the container to a pod."""
    status = {**obj["status"]["containerStatuses"][0], "name": names.CONTAINER_PROCESSES}
    obj["status"]["containerStatuses"].append(status)


def growing(memory: Memory, *pods: dict[str, Any]) -> Mapping[str, MemoryGrowth] | None:
    store, prober = Store(), Answers()
    for obj in pods:
        store.put(obj)
    answers: Any = prober
    answers.memory = memory
    reader = SnapshotReader(store, answers, FACTS, lambda: NOW)
    return reader.read(gen.model(), gen.raw(), TritonModelStatus(), MONITORED, {}).growing


def test_reads_the_servers_that_show_their_processes() -> None:
    """Whatever the present spec says: those of an earlier one may still run."""
    pods = [gen.pod(shows_processes, name="a"), gen.pod(shows_processes, name="b"), gen.pod(name="without")]
    memory = Memory({"a": AT, "b": None, "without": AT})
    assert growing(memory, *pods) == {"a": AT}
    assert memory.tracked == {"a", "b"}


def test_a_server_that_was_not_polled_yet_leaves_all_unknown() -> None:
    assert growing(Memory({"a": AT}, pending=True), gen.pod(shows_processes, name="a")) is None


def test_nothing_is_pending_without_such_a_server() -> None:
    memory = Memory({}, pending=True)
    assert growing(memory, gen.pod(name="without")) == {}
    assert memory.tracked == set()


def ready(found: Mapping[str, MemoryGrowth] | None, before: TritonModelStatus | None = None) -> TritonModelStatus:
    index = {"a": (IndexEntry("a", "1", "READY", ""),)}
    deployment = {"metadata": {"name": gen.NAME, "generation": 1}, "spec": {"replicas": 1}, "status": {}}
    pods = (Pod(gen.pod(name="a")),)
    observed = seen(gen.model(), before, deployment=deployment, pods=pods, indexes=index, growing=found)
    return assess(*observed, "2026-12-01T14:00:00Z")


def of(status: TritonModelStatus) -> Condition:
    return next(c for c in status.conditions if c.type == "Ready")


def test_ready_has_the_hour_and_keeps_it_over_a_restart_of_the_operator() -> None:
    grows = ready({"a": AT})
    assert (of(grows).status, of(grows).reason) == ("True", "MemoryGrows")
    assert "a at about 2026-12-01 15:30 UTC" in of(grows).message
    assert of(ready(None, grows)) == of(grows)
    assert of(ready({}, grows)).reason == "EntrypointAnswers"
    assert of(ready(None)).reason == "EntrypointAnswers"
