"""The sample `language` with a known capacity in the kind cluster, and clients that read its streams."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

from support.api import Object, condition, eventually
from support.cluster import ROOT, Namespace
from support.load import client
from support.prometheus import Monitoring

COUNTER = "vllm:generation_tokens_total"
LIMIT, PER_REPLICA = "tritonoperator.io/max-tps", "tritonoperator.io/max-tps-per-replica"
ALERT = "TritonModelTpsOverflow"
SLOTS = 32
_CLIENT = ROOT / "model_images" / "language" / "client" / "chat.py"
_STREAMS = ROOT / "tests" / "e2e" / "client" / "streams.py"
_HERE = ROOT / "benchmarks" / "streaming"
_REPLAY = (_HERE / "inside" / "replay.py", _HERE / "traces" / "code.txt")
_REPLAY_SECONDS = 1200
_LEAVE = _HERE / "inside" / "leave.py"


class World:
    """The TritonModels of one namespace."""

    def __init__(self, namespace: Namespace, monitoring: Monitoring, capacity: int) -> None:
        self.namespace, self.monitoring, self.capacity = namespace, monitoring, capacity

    def serve(self, name: str, slots: int = SLOTS, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        """Serves the sample as the TritonModel `name`, with the capacity and this number of streams at a time."""
        parameters = {"tokens_per_second": str(self.capacity), "max_num_seqs": str(slots)}
        image = self.namespace.cluster.sample_image("language", **parameters)
        merged = {"entrypoint": "language", "monitoring": {"tokenCounter": COUNTER}, **spec}
        model = self.namespace.model(name, image, **merged)
        model["metadata"]["annotations"] = annotations or {}
        self.namespace.api.apply(model)
        self.namespace.wait_until_complete(name)

    def delete(self, name: str) -> None:
        """Deletes a TritonModel and waits until its servers have ended."""
        self.namespace.api.delete("TritonModel", name)
        eventually(lambda: not self.servers(name), 180, f"the servers of {name} to end")

    def servers(self, name: str) -> set[str]:
        """Returns the names of the servers, also of those that are being deleted."""
        return {pod["metadata"]["name"] for pod in self.namespace.api.list("Pod", f"tritonoperator.io/model={name}")}

    @contextlib.contextmanager
    def reads(
        self,
        name: str,
        readers: int,
        tokens: tuple[int, int],
        pause: float = 0,
        label: str = "reads",
    ) -> Iterator[Object]:
        """Reads streams while the context lasts, half of them over gRPC. Gives a dict for the result.

        `tokens`: the least and the most of one stream. The streams that are open at the end are left.
        """
        counts = ("--http", str(readers - readers // 2), "--grpc", str(readers // 2), "--pause", str(pause))
        options = (*counts, "--tokens", *map(str, tokens), "--leave")
        command = ["python", "/client/streams.py", name, *options]
        with client(self.namespace, f"{label}-{name}", (_STREAMS, _CLIENT), command) as result:
            yield result

    def replays(self, name: str) -> Object:
        """Replays the trace. Returns the clients' result when all of its streams have ended."""
        pod, command = f"replay-{name}", ["python", "/client/replay.py", name, "/client/code.txt"]
        with client(self.namespace, pod, (_STREAMS, _CLIENT, *_REPLAY), command) as result:
            eventually(
                lambda: "replayed" in self.namespace.kubectl("logs", pod, check=False), _REPLAY_SECONDS, "the trace", 2
            )
        return result

    def leaves(self, name: str, rounds: int) -> dict[str, list[float]]:
        """Opens streams and leaves them. Returns the seconds until each slot is free, by protocol."""
        with client(
            self.namespace, f"leaves-{name}", (_LEAVE, _CLIENT), ["python", "/client/leave.py", name, str(rounds)]
        ) as result:
            pass
        return result

    def is_live(self, name: str, limit: int) -> bool:
        """Returns whether ThresholdLive says that Prometheus uses this max-tps."""
        entry = condition(self.namespace.api.get("TritonModel", name), "ThresholdLive")
        return entry.get("status") == "True" and f"max-tps {limit}" in entry["message"]

    def change_limit(self, name: str, limit: int) -> float:
        """Sets max-tps as an on-call engineer does. Returns the seconds until ThresholdLive confirms it."""
        start = time.monotonic()
        self.namespace.kubectl("annotate", f"tm/{name}", "--overwrite", f"{LIMIT}={limit}")
        eventually(lambda: self.is_live(name, limit), 120, lambda: self.namespace.conditions_text(name))
        return time.monotonic() - start

    def wait_for_metrics(self, name: str) -> None:
        """Waits until Prometheus has the rules and the servers' counters."""
        own = f'namespace="{self.namespace.name}",tritonmodel="{name}"'

        def look() -> bool:
            self.monitoring.hurry()
            counters = self.monitoring.query(f'{{__name__="{COUNTER}",{own}}}')
            rules = self.monitoring.query(f"tritonmodel:servers:ready{{{own}}}")
            return bool(counters and rules)

        eventually(look, 240, f"Prometheus to know {name}", 3)

    def tokens_per_second(self, name: str) -> float:
        """Returns the rate of the last minute that the limit is compared with."""
        series = f'sum(tritonmodel:tokens:rate1m{{namespace="{self.namespace.name}",tritonmodel="{name}"}})'
        return self.monitoring.value(series) or 0.0

    def fires(self, name: str) -> bool:
        return self.monitoring.fires(ALERT, namespace=self.namespace.name, tritonmodel=name)

    def histogram_quantile(self, name: str, series: str, q: float, seconds: float) -> float:
        """Returns the quantile of the last seconds, as a dashboard asks for it."""
        selector = f'{series}_bucket{{namespace="{self.namespace.name}",tritonmodel="{name}"}}[{math.ceil(seconds)}s]'
        value = self.monitoring.value(f"histogram_quantile({q}, sum by (le) (increase({selector})))")
        assert value is not None, f"Prometheus has no {series} of {name}"
        return value

    def all_tokens(self, name: str, seconds: float) -> float:
        """Returns the tokens of all servers of the last seconds, also of those that have ended."""
        own = f'__name__="{COUNTER}",namespace="{self.namespace.name}",tritonmodel="{name}"'
        return self.monitoring.value(f"sum(max_over_time({{{own}}}[{math.ceil(seconds)}s]))") or 0.0

    def bounds(self, name: str, series: str) -> list[float]:
        """Returns the upper bounds of a histogram in Prometheus."""
        own = f'namespace="{self.namespace.name}",tritonmodel="{name}"'
        buckets = self.monitoring.query(f"sum by (le) ({series}_bucket{{{own}}})")
        return sorted(float(item["metric"]["le"]) for item in buckets)
