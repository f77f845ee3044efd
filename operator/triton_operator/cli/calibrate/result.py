"""The result of a calibration with its evidence, as JSON and as text. Pure."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from triton_operator.api import thresholds
from triton_operator.api.text import one_line
from triton_operator.status import calibration, pods

from . import plot
from .pod import Object
from .search import Goal, Outcome, Point, Step, fault, proposal

ANNOTATION = thresholds.PREFIX + thresholds.MAX_QPS_PER_REPLICA.name


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


def document(model: Object, goal: Goal, outcome: Outcome, sent: Object, when: str, found: Object) -> Object:
    """Returns the result as a JSON object.

    `sent` describes the load, `when` is the time of the start, `found` is the evidence from the pod. Latencies are in
    seconds, null if requests weren't answered.
    """
    metadata = model["metadata"]
    p99 = [p.p99 for p in outcome.confirmations] or [math.inf]
    return {
        "namespace": metadata["namespace"],
        "tritonModel": metadata["name"],
        "generation": metadata.get("generation"),
        "time": when,
        "targetP99": goal.p99,
        "maxQpsPerReplica": None if outcome.rate is None else float(proposal(outcome.rate)),
        "lowerBound": outcome.at_least,
        "reason": outcome.reason,
        "confirmations": {
            "count": len(outcome.confirmations),
            "p99Min": _finite(min(p99)),
            "p99Max": _finite(max(p99)),
        },
        "curve": [_row(p) for p in outcome.points],
        "limits": {"precision": goal.precision, "seconds": goal.limit},
        "seconds": round(sum(p.took for p in outcome.points), 1),
        "load": sent,
        **found,
    }


def annotation(goal: Goal, outcome: Outcome, when: str, template: Object, pod: Object) -> str:
    """Returns the confirmed result as the value of the annotation, by which the operator knows when it is out of date.

    `template`: the Deployment's pod template. `pod`: the pod that was measured.
    """
    if outcome.rate is None:
        raise ValueError("there is no confirmed rate")
    images = {calibration.MODEL_IMAGE: pods.digest(pod), calibration.SERVER_IMAGE: "".join(pods.server_digests([pod]))}
    return calibration.Evidence(
        time=datetime.fromisoformat(when),
        max_qps_per_replica=proposal(outcome.rate),
        target_p99=goal.p99,
        p99=[p.p99 for p in outcome.confirmations if math.isfinite(p.p99)],
        at_least=outcome.at_least,
        measurements=len(outcome.points),
        template=calibration.parts(template),
        images=images,
    ).text()


def _row(point: Point) -> Object:
    numbers = {"rate": point.rate, "sent": point.sent, "p50": point.p50, "p99": point.p99}
    return {
        "phase": point.phase,
        **{name: _finite(value) for name, value in numbers.items()},
        "requests": point.requests,
        "failures": point.failures,
        **({"error": point.error} if point.error else {}),
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def progress(step: Step, point: Point, goal: Goal) -> str:
    """Returns the line of one measurement."""
    wrong = fault(point, goal)
    return one_line(
        f"{step.number:3} {step.phase:12} {point.rate:10.4g} requests/s   p99 {plot.milliseconds(point.p99):>9}   "
        + (f"too much: {wrong} {point.error}".rstrip() if wrong else "ok")
    )


def command(model: Object, rate: float, context: str | None) -> str:
    """Returns the kubectl command that sets the threshold."""
    metadata = model["metadata"]
    where = f"--context={context} " if context else ""
    return (
        f"kubectl {where}annotate tritonmodel/{metadata['name']} -n {metadata['namespace']} --overwrite "
        f"{ANNOTATION}={proposal(rate)}"
    )


def text(result: Object, model: Object, goal: Goal, outcome: Outcome, context: str | None) -> str:
    """Returns the result for the terminal: the picture, the value with its evidence, and the command to set it."""
    lines = ["", *plot.terminal(outcome.points, goal.p99, outcome.rate), ""]
    if outcome.rate is None:
        return "\n".join([*lines, one_line(f"No result: {outcome.reason}")])
    p99 = sorted(p.p99 for p in outcome.confirmations)
    at_least = "at least " if outcome.at_least else ""
    lines += [
        f"One server handles {at_least}{proposal(outcome.rate)} requests/s with p99 of at most "
        f"{plot.milliseconds(goal.p99)}.",
        f"  confirmed   by {len(p99)} measurements, p99 {', '.join(map(plot.milliseconds, p99))}",
        *(f"  image       {name}: {image}" for name, image in result["images"].items()),
        *(f"  resources   {name}: {_resources(value)}" for name, value in result["resources"].items()),
        f"  node        {result['node']}",
    ]
    if outcome.at_least:
        lines.append("  The load generator was the limit: raise --load-cpu to find the server's.")
    before = (model["metadata"].get("annotations") or {}).get(ANNOTATION)
    lines += ["", f"To set it{f' (now {before})' if before else ''}:", f"  {command(model, outcome.rate, context)}"]
    return "\n".join(map(one_line, lines))


def _resources(value: Any) -> str:
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    shown = [f"{name} {limits[name]}" for name in limits]
    shown += [f"{name} {requests[name]} requested, no limit" for name in requests if name not in limits]
    return ", ".join(shown) or "none"
