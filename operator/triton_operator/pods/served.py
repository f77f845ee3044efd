"""What the servers serve: a change of the spec doesn't change it before a server of the new pod template is ready."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triton_operator.api.status import MAX_DECOUPLED, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.render.facts import Models
from triton_repository_check.report import Report

from .pod import Pod

_EXPLICIT = "--model-control-mode=explicit"
_LOAD_MODEL = "--load-model="


@dataclass(frozen=True)
class Served:
    """What clients call.

    - `entrypoint`: the model; "" if it isn't known yet. `type`: its type; "" if that isn't known.
    - `decoupled`: the decoupled models.
    """

    entrypoint: str
    type: Literal["", "Ensemble", "Model"]
    decoupled: list[str]


def served(model: TritonModel, pods: Sequence[Pod], template: str, before: TritonModelStatus) -> Served:
    """Returns what the servers serve, from the repository check in a pod, the spec, or the last status.

    `template`: the hash of the current pod template.
    """
    report = _deciding(pods, template, before.entrypoint)
    if report is None:
        name = model.spec.entrypoint or before.entrypoint
        return Served(name, before.entrypoint_type if name == before.entrypoint else "", before.decoupled)
    name = report.entrypoint or model.spec.entrypoint or before.entrypoint
    line = next((m for m in report.models if m.name == name), None)
    if line is None:
        kind = before.entrypoint_type if name == before.entrypoint else ""
    else:
        kind = "Ensemble" if line.ensemble else "Model"
    # The check of an older operator doesn't say which models are decoupled.
    unknown = any(m.decoupled is None for m in report.models)
    decoupled = before.decoupled if unknown else [m.name for m in report.models if m.decoupled][:MAX_DECOUPLED]
    return Served(name, kind, decoupled)


def _deciding(pods: Sequence[Pod], template: str, before: str) -> Report | None:
    """Returns the repository check that counts; None if there is none.

    Servers of the previous pod template count until one of the current template is ready, also while none of them is
    ready, so that alerts and autoscaling don't follow a server that never starts. `before`: the last entrypoint.
    """
    living = [pod for pod in reversed(pods) if pod.is_alive]
    current = [pod for pod in living if pod.is_current(template)]
    previous = [pod for pod in living if not pod.is_current(template)]

    def candidates() -> Iterator[Report | None]:
        for group in (current, previous):
            yield from (pod.check_report for pod in group if pod.is_ready)
        yield from (report for pod in previous if (report := pod.check_report) and report.entrypoint == before)
        for group in (current, previous):
            yield from (pod.check_report for pod in group)

    return next(filter(None, candidates()), None)


@dataclass(frozen=True)
class Expected:
    """The models that servers should have loaded.

    `everywhere`: whether each server should also have the models that only others have. With explicit model control, a
    client that loads a model reaches one server.
    """

    names: Collection[str]
    everywhere: bool = False


def expected(
    model: TritonModel, pod: Pod, template: str, report: Report | None, lists: Mapping[str, Models]
) -> Expected:
    """Returns the models that the server in `pod` should have loaded: with the current template, those of the spec.

    `template`: the hash of that template. `report`: the repository check in the pod. `lists`: see `Facts.lists`.
    """
    if pod.is_current(template):
        if model.is_explicit:
            return Expected(model.spec.server.load_models)
    elif pod.list_key:
        return Expected(lists[pod.list_key].listed if pod.list_key in lists else ())
    elif _EXPLICIT in pod.arguments:
        return Expected([a.removeprefix(_LOAD_MODEL) for a in pod.arguments if a.startswith(_LOAD_MODEL)])
    return Expected([line.name for line in report.models] if report else (), everywhere=True)
