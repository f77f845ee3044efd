"""The options of `kubectl triton calibrate`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from triton_operator.api import quantity

from .search import LATENCY, TPOT, TTFT, Goal

_IMAGE = "ghcr.io/triton-operator/perf-analyzer:0.1.0"
_MAX_INPUT = 256 << 20


class _Seconds(click.ParamType[float]):
    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", str(value))
        seconds = float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
        if not 0 < seconds <= 86400:
            self.fail(f"{value!r} is not a duration such as 200ms, 1.5s or 30m", param, ctx)
        return seconds


class _Quantity(click.ParamType[str]):
    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            positive = quantity.parse(value) > 0
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value) if positive else self.fail(f"{value!r} is not above 0", param, ctx)


@click.command("calibrate")
@click.argument("name")
@click.option("--p99", type=_Seconds(), help="Target of the latency p99, e.g. 200ms.")
@click.option("--ttft", type=_Seconds(), help="Of a model that streams: target of p99 of the time to first token.")
@click.option("--tpot", type=_Seconds(), help="Of a model that streams: target of p99 of the time per output token.")
@click.option("--namespace", "-n", default=None, help="Namespace. Default: that of the context.")
@click.option("--context", default=None, help="Context of the kubeconfig. Default: the current context.")
@click.option(
    "--input-data", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="File with inputs in perf_analyzer's JSON format. Default: random inputs for the model's configuration.",
)  # fmt: skip
@click.option(
    "--protocol", type=click.Choice(["http", "grpc"]), help="Default: http, and grpc for a model that streams."
)
@click.option("--limit", type=_Seconds(), default="30m", show_default=True, help="Time limit of the search.")
@click.option(
    "--start-limit",
    type=_Seconds(),
    default=None,
    help="Time limit until the server is ready. Default: as in a rollout.",
)
@click.option("--load-image", default=_IMAGE, show_default=True, help="Image of the load generator.")
@click.option("--load-cpu", type=_Quantity(), default="1", show_default=True, help="CPUs of the load generator.")
@click.option("--load-memory", type=_Quantity(), default="1Gi", show_default=True, help="Memory of the load generator.")
@click.option("--apply", "apply_", is_flag=True, help="Set the threshold. This needs the verb setthresholds.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a picture.")
@click.option("--output", "-o", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def calibrate(
    name: str,
    p99: float | None,
    ttft: float | None,
    tpot: float | None,
    namespace: str | None,
    context: str | None,
    input_data: Path | None,
    protocol: str | None,
    limit: float,
    start_limit: float | None,
    load_image: str,
    load_cpu: str,
    load_memory: str,
    apply_: bool,
    svg: Path | None,
    form: str,
) -> None:
    """Finds how many requests per second one server of the TritonModel NAME handles, and proposes max-qps-per-replica.

    A model that streams has targets for its tokens: --ttft, --tpot or both. Then it proposes max-tps-per-replica, too.

    Starts one more server with the same pod template, which gets no requests of others, and a load generator beside
    it. Deletes both at the end. Exits with 0 if there is a result, with 1 if there is none.
    """
    # The import of the client takes half a second, and other commands don't need it.
    from . import calibration

    targets = _targets(p99, ttft, tpot)
    streams = LATENCY not in targets
    if streams and protocol == "http":
        raise click.UsageError("--ttft and --tpot are measured over gRPC: leave out --protocol=http")
    protocol = protocol or ("grpc" if streams else "http")
    inputs = calibration.Inputs(str(input_data), _read(input_data)) if input_data else calibration.Inputs()
    resources = {"cpu": load_cpu, "memory": load_memory}
    plan = calibration.Plan(name, Goal(targets, limit=limit), start_limit, protocol, inputs, load_image, resources)
    raise SystemExit(calibration.calibrate(plan, namespace, context, apply_, svg, form))


def _targets(p99: float | None, ttft: float | None, tpot: float | None) -> dict[str, float]:
    """Returns the targets in seconds by the kind of latency. Raises click.UsageError."""
    tokens = {kind: target for kind, target in ((TTFT, ttft), (TPOT, tpot)) if target is not None}
    if tokens and p99 is not None:
        raise click.UsageError("--p99 is for a model with one response, --ttft and --tpot are for one that streams")
    if p99 is None and not tokens:
        raise click.UsageError("give a target: --p99, or for a model that streams --ttft, --tpot or both")
    return tokens if p99 is None else {LATENCY: p99}


def _read(file: Path) -> bytes:
    if file.stat().st_size > _MAX_INPUT:
        raise click.ClickException(f"{file}: larger than {_MAX_INPUT >> 20} MiB")
    content = file.read_bytes()
    try:
        if isinstance(json.loads(content).get("data"), list):
            return content
    except (ValueError, AttributeError):
        pass
    raise click.ClickException(f'{file}: not perf_analyzer\'s JSON format, which is {{"data": [{{"INPUT": […]}}, …]}}')
