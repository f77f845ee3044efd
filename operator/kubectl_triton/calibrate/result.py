"""The result of a calibration with its evidence, as JSON and as text. Pure."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from kubectl_triton.charts import terminal
from triton_operator.api import thresholds
from triton_operator.pods import Pod
from triton_operator.status import calibration
from triton_repository_check.text import one_line

from .chart import charts, milliseconds
from .pod import Object
from .search import LATENCY, P99, Goal, Point, SearchResult, Step, fault, proposal

ANNOTATION = thresholds.PREFIX + thresholds.MAX_QPS_PER_REPLICA.name
ANNOTATION_TOKENS = thresholds.PREFIX + thresholds.MAX_TPS_PER_REPLICA.name


def evidence(pod: Object) -> Object:
    """Returns what ran, from the live pod: the digests of the images, the resources of the containers, the node."""
    status, spec = pod.get("status", {}), pod["spec"]
    states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return {
        "images": {s["name"]: s.get("imageID") or s.get("image", "") for s in states},
        "resources": {c["name"]: c.get("resources", {}) for c in spec["containers"]},
        "node": spec.get("nodeName", ""),
        "qosClass": status.get("qosClass", ""),
    }


def document(model: Object, goal: Goal, outcome: SearchResult, load: Object, when: str, server: Object) -> Object:
    """Returns the result as a JSON object.

    `load` describes the load, `when` is the time of the start, `server` is the evidence from the pod. Latencies are in
    seconds by their kind, null if requests weren't answered.
    """
    metadata = model["metadata"]
    p99 = {kind: _p99(outcome, kind) or [math.inf] for kind in goal.targets}
    return {
        "namespace": metadata["namespace"],
        "tritonModel": metadata["name"],
        "generation": metadata.get("generation"),
        "time": when,
        "targets": dict(goal.targets),
        "maxQpsPerReplica": None if outcome.rate is None else float(proposal(outcome.rate)),
        "maxTpsPerReplica": None if outcome.tokens is None else float(proposal(outcome.tokens)),
        "lowerBound": outcome.at_least,
        "reason": outcome.reason,
        "confirmations": {
            "count": len(outcome.confirmations),
            "p99": {kind: {"min": _finite(min(v)), "max": _finite(max(v))} for kind, v in p99.items()},
        },
        "curve": [_row(p) for p in outcome.points],
        "limits": {"precision": goal.precision, "seconds": goal.limit},
        "seconds": round(sum(p.took for p in outcome.points), 1),
        "load": load,
        **server,
    }


def annotation(goal: Goal, outcome: SearchResult, when: str, template: Object, pod: Object) -> str:
    """Returns the confirmed result as the value of the annotation, by which the operator knows when it is out of date.

    It has one target, so there is none for a model that streams. `template`: the Deployment's pod template. `pod`: the
    pod that was measured.
    """
    if outcome.rate is None:
        raise ValueError("there is no confirmed rate")
    images = {calibration.MODEL_IMAGE: Pod(pod).model_digest, calibration.SERVER_IMAGE: Pod(pod).server_digest}
    return calibration.Evidence(
        time=datetime.fromisoformat(when),
        max_qps_per_replica=proposal(outcome.rate),
        target_p99=goal.targets[LATENCY],
        p99=[value for value in _p99(outcome, LATENCY) if math.isfinite(value)],
        at_least=outcome.at_least,
        measurements=len(outcome.points),
        template=calibration.parts(template),
        images=images,
    ).text()


def _row(point: Point) -> Object:
    return {
        "phase": point.phase,
        "rate": _finite(point.rate),
        "sent": _finite(point.sent),
        "latencies": {k: {"p50": _finite(v.p50), "p99": _finite(v.p99)} for k, v in point.latencies.items()},
        "requests": point.requests,
        "failures": point.failures,
        **({"responses": point.responses} if point.responses else {}),
        **({"error": point.error} if point.error else {}),
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def progress(step: Step, point: Point, goal: Goal) -> str:
    """Returns the line of one measurement."""
    reason = fault(point, goal)
    p99 = "   ".join(f"{P99[kind]} {milliseconds(point.latency(kind).p99):>9}" for kind in goal.targets)
    return one_line(
        f"{step.number:3} {step.phase:12} {point.rate:10.4g} requests/s   {p99}   "
        + (f"too much: {reason} {point.error}".rstrip() if reason else "ok")
    )


def proposals(model: Object, outcome: SearchResult) -> dict[str, str]:
    """Returns the annotations with the proposed thresholds; none without a confirmed rate.

    A threshold of tokens is valid only if the TritonModel names a counter of tokens.
    """
    counted = bool(model["spec"].get("monitoring", {}).get("tokenCounter"))
    values = {ANNOTATION: outcome.rate, ANNOTATION_TOKENS: outcome.tokens if counted else None}
    return {key: proposal(value) for key, value in values.items() if value is not None}


def command(model: Object, values: dict[str, str], context: str | None) -> str:
    """Returns the kubectl command that sets these annotations."""
    metadata = model["metadata"]
    where = f"--context={context} " if context else ""
    return f"kubectl {where}annotate tritonmodel/{metadata['name']} -n {metadata['namespace']} --overwrite " + " ".join(
        f"{key}={value}" for key, value in values.items()
    )


def text(result: Object, model: Object, goal: Goal, outcome: SearchResult, context: str | None) -> str:
    """Returns the result for the terminal: the charts, the value with its evidence, and the command to set it."""
    drawings = charts("", outcome.points, goal.targets, outcome.rate)
    lines = ["", *(line for drawing in drawings for line in [*terminal(drawing), ""])]
    if outcome.rate is None:
        return "\n".join([*lines, one_line(f"No result: {outcome.reason}")])
    at_least = "at least " if outcome.at_least else ""
    rates = [f"{proposal(outcome.rate)} requests/s"]
    rates += [f"{proposal(outcome.tokens)} tokens/s"] if outcome.tokens else []
    limits = (f"{P99[kind]} of at most {milliseconds(target)}" for kind, target in goal.targets.items())
    latencies = (f"{P99[kind]} " + ", ".join(map(milliseconds, sorted(_p99(outcome, kind)))) for kind in goal.targets)
    lines += [
        f"One server handles {at_least}{' and '.join(rates)} with {' and '.join(limits)}.",
        f"  confirmed   by {len(outcome.confirmations)} measurements, {'; '.join(latencies)}",
        *(f"  image       {name}: {image}" for name, image in result["images"].items()),
        *(f"  resources   {name}: {_resources(value)}" for name, value in result["resources"].items()),
        f"  node        {result['node']}",
    ]
    if outcome.at_least:
        lines.append("  The load generator was the limit: raise --load-cpu to find the server's.")
    values = proposals(model, outcome)
    if outcome.tokens and ANNOTATION_TOKENS not in values:
        lines.append("  To limit and scale by tokens, too, set spec.monitoring.tokenCounter.")
    annotations = model["metadata"].get("annotations") or {}
    before = " and ".join(annotations[key] for key in values if key in annotations)
    lines += ["", f"To set it{f' (now {before})' if before else ''}:", f"  {command(model, values, context)}"]
    return "\n".join(map(one_line, lines))


def _p99(outcome: SearchResult, kind: str) -> list[float]:
    """Returns p99 of each confirmation, in seconds."""
    return [point.latency(kind).p99 for point in outcome.confirmations]


def _resources(value: Any) -> str:
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    texts = [f"{name} {limits[name]}" for name in limits]
    texts += [f"{name} {requests[name]} requested, no limit" for name in requests if name not in limits]
    return ", ".join(texts) or "none"
