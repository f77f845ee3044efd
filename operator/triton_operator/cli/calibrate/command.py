"""The options of `kubectl triton calibrate`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from triton_operator.api import quantity

from .job import job
from .search import Goal

_IMAGE = "ghcr.io/triton-operator/perf-analyzer:0.1.0"
_JOB_IMAGE = "ghcr.io/triton-operator/operator:0.1.0"
_JOB_START_SECONDS, _JOB_MARGIN_SECONDS = 3600, 600
_MAX_INPUT = 256 << 20


class _Seconds(click.ParamType[float]):
    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", str(value))
        seconds = float(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
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
@click.option("--p99", "target", type=_Seconds(), required=True, help="Target of the latency p99, e.g. 200ms.")
@click.option("--namespace", "-n", default=None, help="Namespace. Default: that of the context.")
@click.option("--context", default=None, help="Context of the kubeconfig. Default: the current context.")
@click.option(
    "--input-data", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="File with inputs in perf_analyzer's JSON format. Default: random inputs for the model's configuration.",
)  # fmt: skip
@click.option("--protocol", type=click.Choice(["http", "grpc"]), default="http", show_default=True)
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
@click.option(
    "--as-job", "account", metavar="SERVICEACCOUNT", default=None,
    help="Print a Job that runs this calibration as the ServiceAccount, for kubectl create -f -.",
)  # fmt: skip
@click.option("--job-image", default=_JOB_IMAGE, show_default=True, help="Image of that Job: the operator's.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a picture.")
@click.option("--output", "-o", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def calibrate(
    name: str,
    target: float,
    namespace: str | None,
    context: str | None,
    input_data: Path | None,
    protocol: str,
    limit: float,
    start_limit: float | None,
    load_image: str,
    load_cpu: str,
    load_memory: str,
    apply_: bool,
    account: str | None,
    job_image: str,
    svg: Path | None,
    form: str,
) -> None:
    """Finds how many requests per second one server of the TritonModel NAME handles, and proposes max-qps-per-replica.

    Starts one more server with the same pod template, which gets no requests of others, and a load generator beside
    it. Deletes both at the end. Exits with 0 if there is a result, with 1 if there is none.
    """
    if account:
        if input_data or svg or context:
            raise click.ClickException(
                "--as-job has no place for files and contexts: leave out --input-data, --svg and --context"
            )
        options = [
            f"--p99={target:g}s", f"--protocol={protocol}", f"--limit={limit:g}s", f"--load-image={load_image}",
            f"--load-cpu={load_cpu}", f"--load-memory={load_memory}", f"--output={form}",
            *([f"--start-limit={start_limit:g}s"] if start_limit else []), *(["--apply"] if apply_ else []),
        ]  # fmt: skip
        seconds = int((start_limit or _JOB_START_SECONDS) + limit + _JOB_MARGIN_SECONDS)
        click.echo(json.dumps(job(name, namespace, account, job_image, options, seconds), indent=2))
        return
    # The import of the client takes half a second, and other commands don't need it.
    from . import conduct

    inputs = conduct.Inputs(str(input_data), _read(input_data)) if input_data else conduct.Inputs()
    resources = {"cpu": load_cpu, "memory": load_memory}
    plan = conduct.Plan(name, Goal(target, limit=limit), start_limit, protocol, inputs, load_image, resources)
    raise SystemExit(conduct.calibrate(plan, namespace, context, apply_, svg, form))


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
