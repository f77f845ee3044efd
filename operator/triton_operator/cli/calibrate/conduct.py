"""Conducts a calibration in the cluster, from the first request to the result."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from triton_operator.api import kinds, names
from triton_operator.api.text import one_line
from triton_operator.cli import cluster
from triton_operator.cluster.api import ApiError

from . import load, plot, result
from .pod import INPUT, Object, pod
from .search import Goal, Outcome, Point, Step, proposal, run, search
from .session import Session, SessionError, refused, running

_MARGIN_SECONDS = 300
"""The pod may run this much longer than its start and the search are allowed to take."""
_MANAGER = "kubectl-triton"
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Inputs:
    """The user's file with inputs. Without one, perf_analyzer generates random inputs."""

    file: str = ""
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to calibrate. `resources` and `image` are the load generator's."""

    name: str
    goal: Goal
    start_limit: float | None
    protocol: str
    inputs: Inputs
    image: str
    resources: Mapping[str, str]


def calibrate(plan: Plan, namespace: str | None, context: str | None, apply_: bool, svg: Path | None, form: str) -> int:
    """Finds the value, prints it with its evidence, and sets it if `apply_`. Returns the exit code.

    Raises click.ClickException if there is no result.
    """
    try:
        with _terminated():
            connection = cluster.connect(namespace, context)
            model, deployment, entrypoint = _fetch(connection, plan.name)
            if apply_:
                _may_set(connection, plan.name)
            start = plan.start_limit or float(deployment["spec"].get("progressDeadlineSeconds", 600))
            seconds = int(start + plan.goal.limit + _MARGIN_SECONDS)
            when = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            sent = load.Load(entrypoint, plan.protocol, INPUT if plan.inputs.content else "random")
            wanted = pod(model, deployment, plan.image, plan.resources, seconds)
            with running(connection, wanted, start, _say) as session:
                measured = session.pod()
                found = result.evidence(measured)
                outcome = _search(session, sent, plan)
    except (cluster.UnreachableError, SessionError, load.LoadError) as error:
        raise click.ClickException(one_line(str(error))) from None
    except KeyboardInterrupt:
        _say("stopped")
        return _INTERRUPTED
    described = {"model": entrypoint, "protocol": plan.protocol, "inputs": plan.inputs.file or "random"}
    answer = result.document(model, plan.goal, outcome, described, when, found)
    if svg:
        title = f"{connection.namespace}/{plan.name}, {when}"
        svg.write_text(plot.svg(title, outcome.points, plan.goal.p99, outcome.rate))
    click.echo(
        json.dumps(answer, indent=2, allow_nan=False)
        if form == "json"
        else result.text(answer, model, plan.goal, outcome, context)
    )
    if outcome.rate is None:
        return 1
    if apply_:
        template = deployment["spec"]["template"]
        _set(connection, model, proposal(outcome.rate), result.annotation(plan.goal, outcome, when, template, measured))
    return 0


def _say(text: str) -> None:
    """Shows progress on standard error, because standard output is for the result."""
    click.echo(text, err=True)


def _fetch(connection: cluster.Cluster, name: str) -> tuple[Object, Object, str]:
    """Returns the TritonModel, its Deployment, and the model that clients call. Raises SessionError."""
    try:
        model = connection.api.get(kinds.TRITON_MODEL, connection.namespace, name)
        deployment = connection.api.get(kinds.DEPLOYMENT, connection.namespace, name)
    except ApiError as error:
        raise refused(error) from None
    entrypoint = model.get("status", {}).get("entrypoint") or model["spec"].get("entrypoint")
    if not entrypoint:
        raise SessionError(f"{name} has no entrypoint yet: wait until it is Ready, or set spec.entrypoint")
    return model, deployment, str(entrypoint)


def _search(session: Session, sent: load.Load, plan: Plan) -> Outcome:
    goal, inputs = plan.goal, plan.inputs.content
    load.check_inputs(session.run(load.config_command(sent), 60), bool(inputs))
    if inputs:
        session.upload(inputs)
    single = load.latency(sent, session.run)
    _say(f"one request at a time takes {plot.milliseconds(single)}")
    if single > goal.p99:
        return Outcome((), reason=f"one request at a time takes {plot.milliseconds(single)}, longer than the target")

    def measure(step: Step) -> Point:
        point = load.measure(sent, session.run, step)
        if point.failures:
            session.check()
        return point

    return run(search(goal, 0.5 / single), measure, lambda step, point: _say(result.progress(step, point, goal)))


def _may_set(connection: cluster.Cluster, name: str) -> None:
    """Raises SessionError if the user may not set thresholds, before the long search."""
    for verb in ("patch", "setthresholds"):
        if not connection.may(verb, name):
            raise SessionError(
                f"--apply needs the verb {verb} on tritonmodels, which the role tritonmodel-oncall has; "
                "without --apply, this command only proposes a value"
            )


def _set(connection: cluster.Cluster, model: Object, value: str, evidence: str) -> None:
    """Sets the threshold, and stores the evidence for it. Fails if the TritonModel was replaced meanwhile."""
    metadata = model["metadata"]
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "annotations": {result.ANNOTATION: value, names.ANNOTATION_CALIBRATION: evidence},
        },
    }
    try:
        connection.api.apply(kinds.TRITON_MODEL, body, metadata["uid"], manager=_MANAGER)
    except ApiError as error:
        raise click.ClickException(one_line(f"the value was not set: {error.message}")) from None
    _say(f"set {result.ANNOTATION}={value}")


@contextmanager
def _terminated() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the command like Ctrl-C, so that the pod is deleted."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
