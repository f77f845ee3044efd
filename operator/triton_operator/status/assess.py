"""The whole status, from one observation."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api import names
from triton_operator.api.status import (
    MODELS_LOADED,
    PROGRESSING,
    READY,
    Condition,
    ImageStatus,
    ModelStatus,
    TritonModelStatus,
)
from triton_operator.api.types import TritonModel
from triton_operator.repository.report import Report

from . import pods
from .conditions import settle
from .models import load_problem, loaded, model_states
from .observation import Object, Observation, Problem

_STARTING = Problem("Creating", "waiting for the Deployment's first pod")


def assess(
    model: TritonModel, seen: Observation, endpoint: str, before: TritonModelStatus, now: str
) -> TritonModelStatus:
    """The status that `seen` stands for. `now` (RFC 3339) is used only where a condition flips."""
    living = [p for p in seen.pods if pods.alive(p)]
    current = [p for p in living if pods.is_current(p, seen.template)]
    ready = [p for p in living if pods.is_ready(p)]
    report = next((r for p in current + living if (r := pods.check_report(p))), None)
    entrypoint = model.spec.entrypoint or (report.entrypoint if report else None) or before.entrypoint
    newest = {n: index for n, index in seen.indexes.items() if n in {p["metadata"]["name"] for p in current}}
    # Two images need not have the same models: while one replaces the other, the newer is what counts.
    models = model_states(model, newest or seen.indexes, report)
    trouble = _trouble(seen, current, models if newest else [])
    digests = sorted({d for p in current if (d := pods.digest(p))})
    return TritonModelStatus(
        observed_generation=model.metadata.generation,
        conditions=settle(
            before.conditions,
            [
                _ready(seen, entrypoint, ready, current, trouble),
                _progressing(seen, living, current, ready, trouble),
                _models_loaded(models, trouble),
            ],
            now,
            model.metadata.generation,
        ),
        models=models,
        loaded=loaded(models) or _declared(report),
        entrypoint=entrypoint,
        image=ImageStatus(
            reference=model.spec.model_image.reference, digest=", ".join(digests), delivery=seen.delivery
        ),
        replicas=len(living),
        ready_replicas=len(ready),
        selector=",".join(f"{k}={v}" for k, v in names.selector(model.name).items()),
        endpoint=endpoint,
    )


def _trouble(seen: Observation, current: Sequence[Object], models: Sequence[ModelStatus]) -> Problem | None:
    """What keeps the current spec from being served, the first cause first."""
    if seen.refused:
        return seen.refused
    failed = _deployment_condition(seen.deployment, "ReplicaFailure")
    if failed.get("status") == "True":
        return Problem("PodsRefused", f"the API server refuses the pods: {failed.get('message', '')}")
    found = [p for pod in current if (p := pods.problem(pod))]
    if sum(map(pods.is_ready, current)) < _wanted(seen):
        # Pods that failed lie about until they are collected: they tell something only while one is missing.
        fallen = [p for p in seen.pods if pods.finished(p) and pods.is_current(p, seen.template)]
        found += [p for pod in fallen if (p := pods.problem(pod))]
    if found:
        return found[0]
    failed_models = load_problem(models)
    if failed_models and not all(pods.is_ready(p) for p in current):
        return failed_models
    return None


def _ready(
    seen: Observation, entrypoint: str, ready: Sequence[Object], current: Sequence[Object], trouble: Problem | None
) -> Condition:
    if ready:
        return _condition(READY, "True", "EntrypointAnswers", f"{entrypoint or 'every model'} answers")
    if seen.deployment and _wanted(seen) == 0:
        return _condition(READY, "False", "ScaledToZero", "the Deployment is scaled to 0")
    cause = trouble or (pods.phase(current[0]) if current else _STARTING)
    return _condition(READY, "False", cause.reason, cause.message)


def _progressing(
    seen: Observation,
    living: Sequence[Object],
    current: Sequence[Object],
    ready: Sequence[Object],
    trouble: Problem | None,
) -> Condition:
    if trouble:
        old = [p for p in ready if p not in current]
        kept = "; the servers of the previous spec keep serving" if old else ""
        return _condition(PROGRESSING, "False", trouble.reason, trouble.message + kept)
    if seen.deployment is None:
        return _condition(PROGRESSING, "True", "Creating", "the Deployment is being created")
    if _complete(seen, seen.deployment, living, current, ready):
        return _condition(PROGRESSING, "False", "Complete", "every server runs the current spec")
    waiting = next((pods.phase(p) for p in current if not pods.is_ready(p)), None)
    if waiting is None:
        waiting = Problem("", "waiting for more servers, or for those of the previous spec to leave")
    return _condition(PROGRESSING, "True", "RollingOut", waiting.message)


def _complete(
    seen: Observation,
    deployment: Object,
    living: Sequence[Object],
    current: Sequence[Object],
    ready: Sequence[Object],
) -> bool:
    observed: int = deployment.get("status", {}).get("observedGeneration", 0)
    seen_by_controller = observed >= deployment["metadata"].get("generation", 0)
    return seen_by_controller and {len(living), len(current), len(ready)} == {_wanted(seen)}


def _wanted(seen: Observation) -> int:
    """Servers that there shall be, by the spec or by whatever else scales the Deployment."""
    return int((seen.deployment or {}).get("spec", {}).get("replicas", 1))


def _models_loaded(models: Sequence[ModelStatus], trouble: Problem | None) -> Condition:
    if trouble and trouble.reason == "RepositoryInvalid":
        return _condition(MODELS_LOADED, "False", trouble.reason, trouble.message)
    if not models:
        return _condition(MODELS_LOADED, "Unknown", "NoServerAnswers", "no server answers yet")
    failed = load_problem(models)
    if failed:
        return _condition(MODELS_LOADED, "False", failed.reason, failed.message)
    if any(m.state != "READY" for m in models):
        return _condition(MODELS_LOADED, "False", "LoadingModels", "the servers load their models")
    return _condition(MODELS_LOADED, "True", "AllLoaded", "every model is loaded on every server that answers")


def _declared(report: Report | None) -> str:
    return f"0/{len(report.models)}" if report and report.models else ""


def _deployment_condition(deployment: Object | None, kind: str) -> Object:
    conditions = (deployment or {}).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition.model_validate({"type": kind, "status": status, "reason": reason, "message": message})
