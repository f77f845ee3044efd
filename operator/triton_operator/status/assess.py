"""Computes the status after a reconcile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from triton_operator.api import kubernetes_versions, names, secrets, server_access
from triton_operator.api.servers import ServerAnswers
from triton_operator.api.status import (
    KSTATUS,
    MAX_EVICTIONS,
    MODELS_LOADED,
    PROGRESSING,
    READY,
    THRESHOLD_LIVE,
    CalibrationStatus,
    Condition,
    ImageStatus,
    ModelStatus,
    RepairStatus,
    TritonModelStatus,
)
from triton_operator.api.thresholds import MAX_QPS
from triton_operator.api.types import TritonModel
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.direct import scaling_status
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.model_changes import LoadDecision
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group, Servers
from triton_operator.pods.problems import WITH_LOG, problem_of, repair_of, step_of
from triton_operator.pods.served import expected, served
from triton_operator.render import endpoint
from triton_operator.render.child_type import Child
from triton_operator.render.children import CHILDREN
from triton_operator.render.network_policy import operator_ports
from triton_repository_check.report import Report

from . import calibration, counting, faults, thresholds
from .autoscaler_active import autoscaler_active
from .conditions import condition, with_transition_times
from .kstatus import COMPLETE, kstatus
from .models import MAX_MODELS, bounded, load_problem, loaded, merged, model_states
from .monitoring_available import monitoring_available
from .threshold_live import threshold_live
from .writes import Writes, writes_of

MAX_NAMED = 3
"""How many of the fields that the API server dropped are named."""
_AUXILIARY = {child.kind.kind for child in CHILDREN if child.condition != PROGRESSING}
"""Child kinds that serving doesn't need."""
_TO_ZERO = "the Deployment is scaled to 0: servers start when spec.replicas or the autoscaler raises the number"
_REFUSED = (
    "{} is ready, but doesn't answer the operator: a NetworkPolicy or a service mesh with strict mTLS may refuse its "
    "connections. Allow ingress to port {} from pods with the label {}: {} in the operator's namespace. Where a "
    "NetworkPolicy denies all, spec.networkPolicy: {{}} allows this, and requests from pods of the namespace"
)
_CLOSED = (
    "the flag {} in spec.server.args closes model-repository to the operator, which has no key, so it doesn't know "
    "which models are loaded. If one doesn't load, the server's log says why: kubectl logs POD -c triton. To have it "
    "here, remove model-repository from the flag, and limit the clients with spec.networkPolicy"
)
_RECENTLY = timedelta(minutes=10)
"""How long an evicted server explains that one is missing."""
_TOGETHER = timedelta(hours=1)
_REQUEST_ENDS_IT = (
    "a request may end the process: find it by the clients' failures. With spec.repair: Report no server restarts, and "
    "only this model fails"
)
_LOG_HIDDEN = (
    "a container has ended: kubectl logs --previous says why. The log isn't shown here, because without the spec the "
    "operator doesn't know which values in it are secret"
)
_STARTING = Problem("Creating", "waiting for the Deployment's first pod")


def assess(snapshot: Snapshot, decision: Decision, outcome: Outcome, now: str) -> TritonModelStatus:
    """Returns the status after a reconcile. `now` (RFC 3339, milliseconds) appears only in fields that change.

    `snapshot`: what is there after the writes.
    """
    model, before, facts = snapshot.model, snapshot.before, decision.facts
    memory = outcome.remember(decision.memory, snapshot.time)
    writes = writes_of(snapshot, decision, outcome, memory)
    desired = [chosen.group.template for chosen in decision.groups]
    groups = tuple(replace(g, template=template) for g, template in zip(snapshot.groups, desired, strict=True))
    snapshot = replace(snapshot, groups=groups)
    living = [p for p in snapshot.pods if p.is_alive]
    current = [p for group in groups for p in group.current]
    ready = [p for p in living if p.is_ready]
    main = snapshot.main
    now_served = served(model, main.living, main.template, before)
    entrypoint = now_served.entrypoint
    reported = [_reported(group, snapshot, decision) for group in groups]
    models = _redacted(model, merged([states for states, _ in reported]))
    newest = _redacted(model, merged([states for states, newest in reported if newest]))
    failure = _pods_problem(groups, newest, now)
    problem = _refusal(writes) or failure
    limits = thresholds.states(snapshot.requested, before.thresholds, now)
    live = next((c for c in before.conditions if c.type == THRESHOLD_LIVE), None)
    conditions = [
        # A write that is refused is seldom why the servers that are there don't answer.
        faults.with_faults(
            _ready(groups, entrypoint, ready, current, failure or problem),
            snapshot.answer,
            ready,
            snapshot.servers.on_cpu,
        ),
        _progressing(snapshot, decision, memory.rollout, current, ready, problem),
        _models_loaded(model, models, problem, snapshot.servers, ready),
        threshold_live(snapshot, facts, limits, live, now),
        counting.with_uncounted_entrypoint(autoscaler_active(snapshot, decision, writes), snapshot, facts, entrypoint),
        counting.with_uncounted_models(monitoring_available(snapshot, writes, models), snapshot, entrypoint),
    ]
    noted = [_with_notes(c, snapshot, decision, writes) for c in conditions if c]
    digests = sorted({p.model_digest for p in main.current} - {""})
    return TritonModelStatus(
        observed_generation=model.metadata.generation,
        conditions=with_transition_times(
            before.conditions,
            [*noted, *(c for progressing in noted if progressing.type == PROGRESSING for c in kstatus(progressing))],
            now[:19] + "Z",
            model.metadata.generation,
        ),
        models=bounded(models),
        loaded=loaded(models) or ("" if ready else _declared(_report(main.current + main.living))),
        entrypoint=entrypoint,
        entrypoint_type=now_served.type,
        decoupled=now_served.decoupled,
        thresholds=limits,
        max_qps=next((t.value for t in limits if (t.kind, t.version) == (MAX_QPS.name, "")), ""),
        autoscaling=scaling_status(decision.scale, before.autoscaling, now),
        calibration=_calibration(model, main),
        last_repair=_last_repair(living, before.last_repair, memory.evicted, now[:19] + "Z"),
        evictions=[*before.evictions, memory.evicted.time][-MAX_EVICTIONS:] if memory.evicted else before.evictions,
        image=ImageStatus(
            reference=model.spec.model_image.reference, digest=", ".join(digests), delivery=facts.delivery
        ),
        newer_template=decision.has_newer_template or None,
        replicas=len(living),
        ready_replicas=len(ready),
        selector=names.as_query(names.selector(model.name)),
        endpoint=endpoint(model),
    )


def _reported(group: Group, snapshot: Snapshot, decision: Decision) -> tuple[list[ModelStatus], bool]:
    """Returns the models of the servers of this group that answer, and whether these have the current pod template.

    During a rollout the new servers' models count, as soon as one of them answers.
    """
    servers = snapshot.servers
    newest = [p for p in group.current if p.name in servers.indexes]
    answering = newest or [p for p in group.living if p.name in servers.indexes]
    if not answering:
        return [], False
    first = answering[0]
    wanted = expected(group.model, first, group.template, _report(answering), decision.facts.lists)
    # Before the next answer of a server, a model that it doesn't list may have been loaded already.
    loading = not decision.load.refused if decision.load.left else servers.pending
    indexes = {p.name: servers.indexes[p.name] for p in answering}
    coming = wanted.names if loading else ()
    return model_states(group.model.name, indexes, wanted, coming, first.shared_memory), bool(newest)


def _report(pods: Iterable[Pod]) -> Report | None:
    """Returns the first repository check in these pods."""
    return next((report for pod in pods if (report := pod.check_report)), None)


def _calibration(model: TritonModel, main: Group) -> CalibrationStatus | None:
    images = {
        calibration.MODEL_IMAGE: {p.model_digest for p in main.current} - {""},
        calibration.SERVER_IMAGE: {p.server_digest for p in main.current} - {""},
    }
    template = (main.deployment or {}).get("spec", {}).get("template")
    return calibration.status(model.metadata.annotations.get(names.ANNOTATION_CALIBRATION), template, images)


def _last_repair(
    living: Sequence[Pod], before: RepairStatus | None, evicted: RepairStatus | None, now: str
) -> RepairStatus | None:
    """Returns the newest repair of a server, also of one whose pod is gone.

    `before`, the newest one until now, counts as the oldest if it is later than `now` (the clock was set back).
    """
    if evicted:
        return evicted
    restarts = [repair for pod in living if (repair := repair_of(pod))]
    newest = max(restarts, key=_age, default=None)
    if newest is None or (before and _age(newest) < _age(before) and before.time <= now):
        return before
    earliest = (datetime.fromisoformat(newest.time) - _TOGETHER).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = [r for r in restarts if r.time >= earliest and _cause(r) == _cause(newest)]
    if len(same) < 2:
        return newest
    message = f"{newest.message}; {len(same)} servers restarted for this within an hour, so {_REQUEST_ENDS_IT}"
    return newest.model_copy(update={"message": message})


def _age(repair: RepairStatus) -> tuple[str, str]:
    return repair.time, repair.server


def _cause(repair: RepairStatus) -> str:
    """Returns the beginning of the message, which names the models whose processes died."""
    return repair.message.partition(" died")[0]


def unread(
    before: TritonModelStatus,
    problem: Problem,
    servers: Sequence[Servers],
    now: str,
    generation: int,
    *,
    unseen: bool,
) -> TritonModelStatus:
    """Returns the status if `problem` prevents reading the spec. The servers keep running, which is all that is known.

    `servers`: the Deployments and their pods. `unseen`: whether there may be pods that the operator can't read.
    """
    living = [p for group in servers for p in group.living]
    current = [p for group in servers for p in group.current]
    ready = [p for p in living if p.is_ready]
    if unseen and not ready:
        answers = condition(READY, "Unknown", problem.reason, problem.message)
    else:
        failure = next((p for pod in current if (p := problem_of(pod))), None)
        if failure and failure.reason in WITH_LOG:
            failure = Problem(failure.reason, _LOG_HIDDEN)
        # Without a pod, the spec is why there is none.
        answers = _ready(servers, before.entrypoint, ready, current, failure or (None if current else problem))
    progressing = condition(PROGRESSING, "False", problem.reason, problem.message)
    others = [c.type for c in before.conditions if c.type not in KSTATUS | {READY, PROGRESSING}]
    conditions = [
        answers,
        progressing,
        *(condition(kind, "Unknown", problem.reason, problem.message) for kind in others),
        *kstatus(progressing),
    ]
    return before.model_copy(
        update={
            "conditions": with_transition_times(before.conditions, conditions, now, generation),
            "observed_generation": generation,
            "replicas": len(living),
            "ready_replicas": len(ready),
        }
    )


def held(before: TritonModelStatus, step: Problem, now: str) -> TritonModelStatus:
    """Returns the status while a spec waits that isn't acted on yet: that of the last one, and the step.

    Its generation is that of the last spec, too.
    """
    progressing = condition(PROGRESSING, "True", step.reason, step.message)
    others = [c for c in before.conditions if c.type not in KSTATUS | {PROGRESSING}]
    if not any(c.type == READY for c in others):
        others = [condition(READY, "False", step.reason, step.message), *others]
    conditions = [*others, progressing, *kstatus(progressing)]
    return before.model_copy(
        update={"conditions": with_transition_times(before.conditions, conditions, now, before.observed_generation)}
    )


def _redacted(model: TritonModel, models: Sequence[ModelStatus]) -> list[ModelStatus]:
    """Returns `models` with sensitive values redacted from Triton's messages."""
    if not any(m.reason for m in models):
        return list(models)
    hidden = secrets.values(model)
    return [m.model_copy(update={"reason": secrets.redact(m.reason, hidden)}) for m in models]


def _refusal(writes: Writes) -> Problem | None:
    """Returns the first refused write that keeps the current spec from being served; None if there is none."""
    return next((p for kind, p in writes.refused.items() if kind not in _AUXILIARY), None)


def _pods_problem(groups: Sequence[Group], models: Sequence[ModelStatus], now: str) -> Problem | None:
    """Returns the first problem that keeps servers of the current spec from answering; None if there is none."""
    if problem := next((p for group in groups if (p := _group_problem(group, now))), None):
        return problem
    failed_models = load_problem(models)
    if failed_models and not all(p.is_ready for group in groups for p in group.current):
        return failed_models
    return None


def _group_problem(group: Group, now: str) -> Problem | None:
    """Returns the first problem of the pods of this group; None if there is none."""
    if group.refusal is not None:
        return _named(group, Problem("PodsRefused", f"the API server refuses the pods: {group.refusal}"))
    current = group.current
    problems = [p for pod in current if (p := problem_of(pod))]
    if not problems and sum(p.is_ready for p in current) < group.desired:
        # What a node was short of, the next server may use, too.
        recent = datetime.fromisoformat(now) - _RECENTLY
        evicted = [p for p in group.pods if p.is_evicted and p.is_current(group.template) and p.ended_at > recent]
        problems = [p for pod in evicted if (p := problem_of(pod))]
    if not problems:
        return None
    first = problems[0]
    if first.reason in WITH_LOG:
        first = Problem(first.reason, secrets.redact(first.message, secrets.values(group.model)))
    return _named(group, first)


def _named(group: Group, problem: Problem) -> Problem:
    """Returns the problem with the name of the group, if it has one."""
    return Problem(problem.reason, f"group {group.name}: {problem.message}") if group.name else problem


def _ready(
    groups: Sequence[Servers],
    entrypoint: str,
    ready: Sequence[Pod],
    current: Sequence[Pod],
    problem: Problem | None,
) -> Condition:
    if ready:
        return condition(READY, "True", "EntrypointAnswers", f"{entrypoint or 'every model'} answers")
    if all(group.deployment is not None and group.desired == 0 for group in groups):
        return condition(READY, "False", "ScaledToZero", _TO_ZERO)
    cause = problem or (step_of(current[0]) if current else _STARTING)
    return condition(READY, "False", cause.reason, cause.message)


def _progressing(
    snapshot: Snapshot,
    decision: Decision,
    rollout: str,
    current: Sequence[Pod],
    ready: Sequence[Pod],
    problem: Problem | None,
) -> Condition:
    if problem:
        old = [p for p in ready if p not in current]
        suffix = "; the servers of the previous spec keep serving" if old else ""
        return condition(PROGRESSING, "False", problem.reason, problem.message + suffix)
    if any(group.deployment is None for group in snapshot.groups):
        return condition(PROGRESSING, "True", "Creating", "the Deployment is being created")
    if decision.load.left:
        return _changing(decision.load, secrets.values(snapshot.model))
    if all(group.is_complete for group in snapshot.groups) and not any(pod.is_alive for pod in snapshot.ending):
        differing = "".join(_differing(group.current) for group in snapshot.groups)
        return condition(
            PROGRESSING, "False", COMPLETE, "every server runs the current spec" + differing + _newer(decision)
        )
    if paused := next((group for group in snapshot.groups if group.is_paused and not group.is_complete), None):
        name = names.deployment(paused.model.name, paused.name)
        return condition(
            PROGRESSING, "False", "DeploymentPaused",
            "the Deployment is paused, so Kubernetes replaces no server: "
            f"run kubectl rollout resume deployment/{name}",
        )  # fmt: skip
    waiting = next((_named(g, step_of(p)) for g in snapshot.groups for p in g.current if not p.is_ready), None)
    if waiting is None:
        waiting = Problem("", "waiting for new servers to start, or for servers of the previous spec to stop")
    why = f"; the servers are replaced for the change of spec.server.loadModels: {rollout}"
    return condition(PROGRESSING, "True", "RollingOut", waiting.message + (why if rollout else ""))


def _changing(change: LoadDecision, hidden: Collection[str]) -> Condition:
    """Progressing while the models of running servers change. `hidden`: sensitive values."""
    failure = secrets.redact(change.failure, hidden) if change.failure else ""
    if change.refused:
        return condition(
            PROGRESSING, "False", "ModelLoadFailed",
            f"the models of spec.server.loadModels can't be loaded: {failure}; the servers keep serving the "
            "models that they have. Correct spec.server.loadModels, or replace the servers by a change of "
            "spec.rollout.restartedAt",
        )  # fmt: skip
    many = f"{change.left} server{'s' if change.left > 1 else ''}"
    message = f"{many} still to change to the models of spec.server.loadModels, without a restart"
    return condition(PROGRESSING, "True", "ChangingModels", message + (f"; {failure}" if failure else ""))


def _with_notes(now: Condition, snapshot: Snapshot, decision: Decision, writes: Writes) -> Condition:
    """Adds what the cluster's version means for the objects that this condition is about, and the next repair."""
    of_children = [child for child in CHILDREN if child.condition == now.type]
    kubernetes, delivery = decision.facts.cluster.kubernetes, decision.facts.delivery
    notes = [
        note
        for child in of_children
        for note in (
            _dropped(child, writes, kubernetes, delivery),
            _left_out(child, writes),
            writes.contested.get(child.kind.kind, ""),
        )
    ]
    if now.type == PROGRESSING or (now.type == READY and now.status == "False"):
        notes.append(decision.repair.note)
    if now.type == PROGRESSING:
        notes += [snapshot.refused_if_new, kubernetes_versions.too_old(kubernetes)]
    if not any(notes):
        return now
    return condition(now.type, now.status, now.reason, "; ".join(note for note in (now.message, *notes) if note))


def _left_out(child: Child, writes: Writes) -> str:
    kind = child.kind.kind
    # If it is refused, it isn't there at all.
    fields = () if kind in writes.refused else writes.left_out.get(kind, ())
    return "; ".join(
        f"the {kind} is without {field.left_out}, because this cluster's CRD doesn't know {field.path}: "
        f"{field.since} and later have it"
        for field in fields
    )


def _dropped(child: Child, writes: Writes, kubernetes: tuple[int, int], delivery: str) -> str:
    paths = [path.removeprefix(".") for path in writes.dropped.get(child.kind.kind, ())]
    if not paths:
        return ""
    more = " and others" if len(paths) > MAX_NAMED else ""
    fields = f"{', '.join(paths[:MAX_NAMED])}{more} of the {child.kind.kind}"
    if child.kind.optional:
        return f"a webhook removed {fields}"
    cluster = kubernetes_versions.cluster(kubernetes)
    note = f"{cluster} dropped {fields}, because its feature gate is off, or a webhook removed it"
    has_volume = delivery == "ImageVolume" and any(".volumes[" in path for path in paths)
    if has_volume and kubernetes < kubernetes_versions.IMAGE_VOLUMES:
        note += (
            f"; image volumes need Kubernetes {kubernetes_versions.name(kubernetes_versions.IMAGE_VOLUMES)} or the "
            "feature gate ImageVolume: set spec.modelImage.delivery to Copy"
        )
    return note


def _differing(pods: Sequence[Pod]) -> str:
    """Returns which image differs between the servers, because its tag was moved; "" if none does."""
    images = {
        "model image": {p.model_digest for p in pods} - {""},
        "server image": {p.server_digest for p in pods} - {""},
    }
    return "".join(
        f"; but they have {len(digests)} versions of the {image}, as after a move of its tag: "
        f"{', '.join(sorted(digests))}. To have one, name it by its digest"
        for image, digests in images.items()
        if len(digests) > 1
    )


def _newer(decision: Decision) -> str:
    if not decision.has_newer_template:
        return ""
    return (
        "; this version of the operator has a newer pod template, which the next change of the spec rolls out. To roll "
        "it out now, change spec.rollout.restartedAt"
    )


def _models_loaded(
    model: TritonModel,
    models: Sequence[ModelStatus],
    problem: Problem | None,
    servers: ServerAnswers,
    ready: Sequence[Pod],
) -> Condition:
    if problem and problem.reason == "RepositoryInvalid":
        return condition(MODELS_LOADED, "False", problem.reason, problem.message)
    unknown = _unusable(servers.unusable)
    if not models:
        if flag := server_access.closes_index(model.spec.server.args):
            return condition(MODELS_LOADED, "Unknown", "APIRestricted", _CLOSED.format(flag))
        if unknown:
            return condition(MODELS_LOADED, "Unknown", "AnswerUnusable", unknown)
        if ready and not servers.indexes and not servers.pending:
            return condition(MODELS_LOADED, "Unknown", "NoServerAnswers", _refused(model, ready[0]))
        return condition(MODELS_LOADED, "Unknown", "NoServerAnswers", "no server answers yet")
    more = "".join(f"; {part}" for part in (unknown, _too_many(models)) if part)
    failed = load_problem(models)
    if failed:
        return condition(MODELS_LOADED, "False", failed.reason, failed.message + more)
    if any(m.state != "READY" for m in models):
        return condition(MODELS_LOADED, "False", "LoadingModels", "the servers are loading their models" + more)
    return condition(MODELS_LOADED, "True", "AllLoaded", "every model is loaded on every server that answers" + more)


def _refused(model: TritonModel, pod: Pod) -> str:
    ports = ", ".join(str(names.PORTS[name]) for name in operator_ports(model))
    return _REFUSED.format(pod.name, ports, names.LABEL_NAME, names.FIELD_MANAGER)


def _unusable(unusable: Mapping[str, str]) -> str:
    """Returns the first server whose answer can't be used, and the reason; "" if there is none."""
    if not unusable:
        return ""
    pod, fault = min(unusable.items())
    count = len(unusable) - 1
    more = f" (the same is true of {count} more server{'s' if count > 1 else ''})" if count else ""
    return f"the repository index of {pod} {fault}{more}"


def _too_many(models: Sequence[ModelStatus]) -> str:
    return f"the operator reports only the first {MAX_MODELS} models" if len(models) >= MAX_MODELS else ""


def _declared(report: Report | None) -> str:
    return f"0/{len(report.models)}" if report and report.models else ""
