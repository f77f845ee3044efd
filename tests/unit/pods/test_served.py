"""What the servers serve while others of a new spec start."""

from __future__ import annotations

from typing import Any

from support import gen
from support.observing import seen
from triton_operator.api.servers import IndexEntry
from triton_operator.api.status import TritonModelStatus
from triton_operator.pods import Pod
from triton_operator.pods.served import Served, served
from triton_operator.render.facts import Models
from triton_operator.status.assess import assess

OLD = "template-0"
BEFORE = TritonModelStatus(entrypoint="det", entrypoint_type="Ensemble", decoupled=["det"])
WAS, IS = Served("det", "Ensemble", ["det"]), Served("det2", "Ensemble", ["chat"])


def old(*modifiers: gen.Modifier, name: str = "old") -> Any:
    return _checked(gen.report("det", entrypoint="det", decoupled=["det"]), *modifiers, name=name, template=OLD)


def new(*modifiers: gen.Modifier, name: str = "new") -> Any:
    return _checked(gen.report("det2", "chat", entrypoint="det2", decoupled=["chat"]), *modifiers, name=name)


def _checked(report: Any, *modifiers: gen.Modifier, **more: Any) -> Any:
    return gen.pod(gen.checked(report), *modifiers, **more)


def facts(*pods: Any, before: TritonModelStatus = BEFORE, **spec: Any) -> Served:
    return served(gen.model(**spec), [Pod(pod) for pod in pods], gen.TEMPLATE, before)


def test_the_facts_of_the_old_servers_hold_until_a_new_one_is_ready() -> None:
    renamed = {"entrypoint": "det2"}
    for spec in ({}, renamed):
        assert facts(old(), **spec) == WAS, "before the first new server"
        assert facts(old(), new(gen.not_ready), **spec) == WAS
        assert facts(old(gen.not_ready), new(gen.not_ready), **spec) == WAS, "no server answers for a moment"
        assert facts(old(), new(), **spec) == IS
        assert facts(new(), old(), **spec) == IS, "in any order"
        assert facts(old(gen.not_ready), new(), **spec) == IS
        assert facts(old(gen.deleting), new(gen.not_ready), **spec) == IS, "no old server is left"
        assert facts(new(gen.not_ready), **spec) == IS


def test_the_facts_of_a_ready_server_count_when_the_status_is_lost_or_wrong() -> None:
    lost = TritonModelStatus()
    assert facts(old(), new(gen.not_ready), before=lost) == WAS
    assert facts(old(), new(gen.not_ready), before=lost.model_copy(update={"entrypoint": "det2"})) == WAS
    assert facts(old(gen.not_ready), new(gen.not_ready), before=lost) == IS


def test_without_a_checked_server_the_spec_and_the_last_status_count() -> None:
    assert facts() == WAS
    assert facts(entrypoint="x") == Served("x", "", ["det"])
    assert facts(gen.pod(gen.not_ready)) == WAS


def models(*pods: Any, indexes: dict[str, tuple[str, ...]], lists: Any = None, **spec: Any) -> TritonModelStatus:
    """Returns the status with these servers. `indexes`: the models that each has loaded."""
    states = {name: tuple(IndexEntry(model, "1", "READY", "") for model in has) for name, has in indexes.items()}
    observed = seen(
        gen.model(**spec),
        BEFORE,
        deployment={"metadata": {"name": gen.NAME}, "spec": {"replicas": 1}},
        pods=tuple(map(Pod, pods)),
        indexes=states,
        facts={"lists": lists or {}},
    )
    return assess(*observed, "2026-01-01T00:00:00Z")


def condition(status: TritonModelStatus, kind: str) -> tuple[str, str]:
    return next((c.status, c.reason) for c in status.conditions if c.type == kind)


def test_old_servers_are_not_expected_to_have_the_models_of_the_new_spec() -> None:
    status = models(old(), new(gen.not_ready), indexes={"old": ("det",)}, entrypoint="det2")
    assert condition(status, "ModelsLoaded") == ("True", "AllLoaded")
    assert (status.entrypoint, status.loaded) == ("det", "1/1")
    message = next(c.message for c in status.conditions if c.type == "Ready")
    assert message == "det answers"


def test_old_servers_are_expected_to_have_the_models_of_their_own_list() -> None:
    explicit = {"entrypoint": "det2", "server": {"modelControl": "explicit", "loadModels": ["det2", "chat"]}}
    source = {"name": "x", "items": [{"key": "k", "path": "models"}]}
    listed = gen.put("spec.volumes", [{"name": "load-models", "configMap": source}])
    lists = {"k": Models(("det",))}
    status = models(old(listed), indexes={"old": ("det", "loaded-by-hand")}, lists=lists, **explicit)
    assert condition(status, "ModelsLoaded") == ("True", "AllLoaded")
    status = models(old(listed), indexes={"old": ()}, lists=lists, **explicit)
    assert [(m.name, m.state) for m in status.models] == [("det", "MISSING")]
    flags = gen.put("spec.containers.0.args", ["--model-control-mode=explicit", "--load-model=det"])
    status = models(old(flags), indexes={"old": ()}, **explicit)
    assert [(m.name, m.state) for m in status.models] == [("det", "MISSING")]
    status = models(new(), old(flags), indexes={"old": ("det",), "new": ("det2",)}, **explicit)
    assert [(m.name, m.state) for m in status.models] == [("chat", "MISSING"), ("det2", "READY")]
