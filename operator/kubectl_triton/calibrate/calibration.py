"""Conducts a calibration in the cluster, from the first request to the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from kubectl_triton import charts, cluster, signals
from kubectl_triton.pod_session import Purpose, Session, SessionError, running
from triton_operator.api import kinds, names
from triton_operator.cluster.errors import ApiError
from triton_repository_check.text import one_line

from . import chart, load, result
from .pod import CONTAINER, INPUT, Object, pod
from .search import LATENCY, Goal, Point, SearchResult, Step, run, search

_MARGIN_SECONDS = 300
"""The pod may run this much longer than its start and the search are allowed to take."""
_MANAGER = "kubectl-triton"
_PURPOSE = Purpose(
    "calibration",
    CONTAINER,
    "calibrate needs get on tritonmodels, get on deployments, create, get and delete on pods, and get and create on "
    "pods/exec in the namespace; Kubernetes' role edit has them",
)
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

    @property
    def streams(self) -> bool:
        """Whether the targets are those of a model that streams."""
        return LATENCY not in self.goal.targets


def calibrate(plan: Plan, namespace: str | None, context: str | None, apply_: bool, svg: Path | None, form: str) -> int:
    """Finds the value, prints it with its evidence, and sets it if `apply_`. Returns the exit code.

    Raises click.ClickException if there is no result.
    """
    try:
        with signals.as_interrupt():
            connection = cluster.connect(namespace, context)
            model, deployment, entrypoint = _fetch(connection, plan.name)
            if apply_:
                _may_set(connection, plan.name)
            start = plan.start_limit or float(deployment["spec"].get("progressDeadlineSeconds", 600))
            seconds = int(start + plan.goal.limit + _MARGIN_SECONDS)
            when = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            inputs = INPUT if plan.inputs.content else "random"
            traffic = load.Load(entrypoint, plan.protocol, inputs, streams=plan.streams)
            manifest = pod(model, deployment, plan.image, plan.resources, seconds)
            with running(connection, manifest, _PURPOSE, start, _say) as session:
                server = session.pod()
                evidence = result.evidence(server)
                outcome = _search(session, traffic, plan)
    except (cluster.UnreachableError, SessionError, load.LoadError) as error:
        raise click.ClickException(one_line(str(error))) from None
    except KeyboardInterrupt:
        _say("stopped")
        return _INTERRUPTED
    description = {"model": entrypoint, "protocol": plan.protocol, "inputs": plan.inputs.file or "random"}
    answer = result.document(model, plan.goal, outcome, description, when, evidence)
    if svg and outcome.points:
        title = f"{connection.namespace}/{plan.name}, {when}"
        drawings = chart.charts(title, outcome.points, plan.goal.targets, outcome.rate)
        svg.write_text(charts.svg(drawings), encoding="utf-8")
    click.echo(
        json.dumps(answer, indent=2, allow_nan=False)
        if form == "json"
        else result.text(answer, model, plan.goal, outcome, context)
    )
    if outcome.rate is None:
        return 1
    if apply_:
        annotations = result.proposals(model, outcome)
        if not plan.streams:
            template = deployment["spec"]["template"]
            stored = result.annotation(plan.goal, outcome, when, template, server)
            annotations |= {names.ANNOTATION_CALIBRATION: stored}
        _set(connection, model, annotations)
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
        raise _PURPOSE.refused(error) from None
    entrypoint = model.get("status", {}).get("entrypoint") or model["spec"].get("entrypoint")
    if not entrypoint:
        raise SessionError(f"{name} has no entrypoint yet: wait until it is Ready, or set spec.entrypoint")
    return model, deployment, str(entrypoint)


def _search(session: Session, traffic: load.Load, plan: Plan) -> SearchResult:
    goal, inputs = plan.goal, plan.inputs.content
    load.check_inputs(session.run(load.config_command(traffic), 60), bool(inputs), traffic.streams)
    if inputs:
        session.upload(inputs, INPUT)
    single = load.idle(traffic, session.run)
    latency = single.latencies[LATENCY].p50
    _say(f"one request at a time takes {chart.milliseconds(latency)}")
    if reason := load.impossible(goal, single):
        return SearchResult((), reason=reason)
    goal = replace(goal, answer=load.answer_seconds(goal, single))

    def measure(step: Step) -> Point:
        point = load.measure(traffic, session.run, step)
        if point.failures:
            session.check()
        return point

    return run(search(goal, 0.5 / latency), measure, lambda step, point: _say(result.progress(step, point, goal)))


def _may_set(connection: cluster.Cluster, name: str) -> None:
    """Raises SessionError if the user may not set thresholds, before the long search."""
    for verb in ("patch", "setthresholds"):
        if not connection.may(verb, name):
            raise SessionError(
                f"--apply needs the verb {verb} on tritonmodels, which the role tritonmodel-oncall has; "
                "without --apply, this command only proposes a value"
            )


def _set(connection: cluster.Cluster, model: Object, annotations: Mapping[str, str]) -> None:
    """Sets the thresholds, and stores the evidence for them. Fails if the TritonModel was replaced meanwhile."""
    metadata = model["metadata"]
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "annotations": dict(annotations),
        },
    }
    try:
        connection.api.apply(kinds.TRITON_MODEL, body, metadata["uid"], manager=_MANAGER)
    except ApiError as error:
        raise click.ClickException(one_line(f"the value was not set: {error.message}")) from None
    values = (f"{key}={value}" for key, value in annotations.items() if key != names.ANNOTATION_CALIBRATION)
    _say(f"set {' and '.join(values)}")
