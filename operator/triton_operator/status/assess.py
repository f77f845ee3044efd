"""Computes the status after a reconcile."""

from __future__ import annotations

from dataclasses import replace

from triton_operator.api import names
from triton_operator.api.status import (
    MAX_EVICTIONS,
    PROGRESSING,
    READY,
    THRESHOLD_LIVE,
    CalibrationStatus,
    ImageStatus,
    TritonModelStatus,
)
from triton_operator.api.thresholds import MAX_QPS
from triton_operator.api.types import TritonModel
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.pods import Problem
from triton_operator.pods.group import Group
from triton_operator.pods.served import served
from triton_operator.render import endpoint
from triton_operator.render.children import CHILDREN
from triton_repository_check.report import Report

from . import calibration, counting, faults, thresholds
from .autoscaler_active import autoscaler_active
from .canary import canary
from .conditions import with_transition_times
from .enforced import enforced
from .kstatus import kstatus
from .last_answer import with_last_answer
from .last_repair import last_repair
from .last_scale import last_scale
from .models import bounded, loaded, merged
from .models_loaded import check_report, models_loaded, redacted, reported_models
from .monitoring_available import monitoring_available
from .notes import with_notes
from .pods_problem import pods_problem
from .progressing import progressing
from .ready import ready_condition
from .routed import routed
from .threshold_live import threshold_live
from .unmeasured import with_unmeasured_latency
from .writes import Writes, writes_of

_AUXILIARY = {child.kind.kind for child in CHILDREN if child.condition != PROGRESSING}
"""Child kinds that serving doesn't need."""


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
    reported = [reported_models(group, snapshot, chosen) for group, chosen in zip(groups, decision.groups, strict=True)]
    models = redacted(model, merged([states for states, _ in reported]))
    newest = redacted(model, merged([states for states, newest in reported if newest]))
    problem = _refusal(writes) or pods_problem(groups, newest, now)
    # A canary behind a Gateway isn't enough to be Ready: it gets only its share.
    serving = groups if facts.serves_all else groups[:1]
    answering = ready if facts.serves_all else [p for p in groups[0].living if p.is_ready]
    limits = thresholds.states(snapshot.requested, before.thresholds, now)
    accepted = routed(snapshot, decision, writes)
    judged = memory.canary
    version = before.server_version if snapshot.servers.pending else _versions(snapshot)
    live, said = (next((c for c in before.conditions if c.type == kind), None) for kind in (THRESHOLD_LIVE, READY))
    # A write that is refused is seldom why the servers that are there don't answer.
    answers = ready_condition(serving, entrypoint, answering, pods_problem(serving, newest, now) or _refusal(writes))
    able = faults.with_faults(
        answers, snapshot.answer, ready, snapshot.servers.on_cpu, snapshot.growing or {}, decision.replacement.note
    )
    if snapshot.growing is None:
        able = faults.with_last_growth(able, said, ready)
    conditions = [
        able,
        progressing(snapshot, decision, memory.rollout, current, ready, problem),
        models_loaded(model, models, problem, snapshot.servers, ready),
        threshold_live(snapshot, facts, limits, live, now),
        counting.with_uncounted_entrypoint(autoscaler_active(snapshot, decision, writes), snapshot, facts, entrypoint),
        counting.with_uncounted_models(
            with_unmeasured_latency(monitoring_available(snapshot, writes, models), model, version),
            snapshot,
            entrypoint,
        ),
        accepted,
        enforced(snapshot, decision, writes, accepted),
        canary(snapshot, groups, [redacted(model, states) for states, _ in reported], accepted, judged, now),
    ]
    noted = [with_notes(c, snapshot, decision, writes) for c in conditions if c]
    digests = sorted({p.model_digest for p in main.current} - {""})
    status = TritonModelStatus(
        observed_generation=model.metadata.generation,
        conditions=with_transition_times(
            before.conditions,
            [*noted, *(k for c in noted if c.type == PROGRESSING for k in kstatus(c))],
            now[:19] + "Z",
            model.metadata.generation,
        ),
        models=bounded(models),
        loaded=loaded(models) or ("" if ready else _declared(check_report(main.current + main.living))),
        entrypoint=entrypoint,
        entrypoint_type=now_served.type,
        decoupled=now_served.decoupled,
        thresholds=limits,
        max_qps=next((t.value for t in limits if (t.kind, t.version) == (MAX_QPS.name, "")), ""),
        autoscaling=last_scale(decision.scale, before.autoscaling, now),
        canary=judged.progress if judged else None,
        calibration=_calibration(model, main),
        last_repair=last_repair(living, main.deployment, before.last_repair, memory.evicted, now[:19] + "Z"),
        evictions=[*before.evictions, memory.evicted.time][-MAX_EVICTIONS:] if memory.evicted else before.evictions,
        image=ImageStatus(
            reference=model.spec.model_image.reference, digest=", ".join(digests), delivery=facts.delivery
        ),
        server_version=version,
        newer_template=decision.has_newer_template or None,
        # What a client that scales the TritonModel reads: a canary follows the other servers, so it doesn't count.
        replicas=len(groups[0].living),
        ready_replicas=sum(p.is_ready for p in groups[0].living),
        selector=names.as_query(
            names.selector_without_groups(model.name) if groups[1:] or snapshot.ending else names.selector(model.name)
        ),
        endpoint=endpoint(model),
    )
    is_missing = snapshot.answer is not None and snapshot.answer.is_missing
    return with_last_answer(status, before, ready) if is_missing else status


def _calibration(model: TritonModel, main: Group) -> CalibrationStatus | None:
    images = {
        calibration.MODEL_IMAGE: {p.model_digest for p in main.current} - {""},
        calibration.SERVER_IMAGE: {p.server_digest for p in main.current} - {""},
    }
    template = (main.deployment or {}).get("spec", {}).get("template")
    return calibration.status(model.metadata.annotations.get(names.ANNOTATION_CALIBRATION), template, images)


def _versions(snapshot: Snapshot) -> str:
    return ", ".join(sorted({snapshot.servers.versions.get(p.name, "") for p in snapshot.pods if p.is_alive} - {""}))


def _refusal(writes: Writes) -> Problem | None:
    """Returns the first refused write that keeps the current spec from being served; None if there is none."""
    return next((p for kind, p in writes.refused.items() if kind not in _AUXILIARY), None)


def _declared(report: Report | None) -> str:
    return f"0/{len(report.models)}" if report and report.models else ""
