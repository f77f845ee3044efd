"""`--with-server`: starts tritonserver on the repository, in Docker or in a pod, and sends requests to its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import click

from kubectl_triton import signals
from kubectl_triton.trial import findings as of_requests
from triton_repository_check import overrides
from triton_repository_check.expected import Expected
from triton_repository_check.files import Files, Store
from triton_repository_check.findings import Finding
from triton_repository_check.model import Repository

from . import images, in_docker, server_pod, tritonserver

CODES = {**tritonserver.CODES, **of_requests.CODES}
_MAX_FILE = 256 << 20
_HEALTH = "health.json"
_REQUEST_SECONDS = 20.0


@dataclass(frozen=True)
class Run:
    """What `--with-server` does.

    - `image`: the server's. `seconds`: the time limit until the models are loaded.
    - `request_seconds`: the time limit for the answer to a request.
    - `each_step`: whether models that are only steps of ensembles get requests of their own, too.
    - `files`: names and contents of files with inputs, by model; "" for one whose model isn't named.
    - `place`: where the pod runs; None for Docker.
    """

    image: str = tritonserver.IMAGE
    seconds: float = tritonserver.SECONDS
    request_seconds: float = _REQUEST_SECONDS
    each_step: bool = False
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    place: server_pod.Place | None = None


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of the requests."""
    for option in (
        click.option(
            "--input-data", multiple=True, metavar="[MODEL=]FILE",
            help="Values of real requests in perf_analyzer's JSON format, for --with-server. Default of MODEL: "
            "--entrypoint, or the model with these inputs.",
        ),
        click.option(
            "--each-step", is_flag=True, help="With --with-server, also send requests to the steps of ensembles."
        ),
        click.option(
            "--request-seconds", type=click.FloatRange(min=0, min_open=True), default=_REQUEST_SECONDS,
            show_default=True, help="With --with-server, the time limit for the answer to a request.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def files(arguments: tuple[str, ...], entrypoint: str | None) -> dict[str, tuple[str, bytes]]:
    """Reads the files of --input-data. Raises click.UsageError."""
    read = {}
    for argument in arguments:
        model, separator, name = argument.partition("=")
        model, name = (model, name) if separator else ("", argument)
        try:
            if Path(name).stat().st_size > _MAX_FILE:
                raise click.UsageError(f"--input-data: {name} is larger than {_MAX_FILE >> 20} MiB")
            read[model or entrypoint or ""] = (name, Path(name).read_bytes())
        except OSError as error:
            raise click.UsageError(f"--input-data: {name} can't be read: {error.strerror}") from None
    return read


def findings(store: Store, repository: Repository, expected: Expected, run: Run) -> Iterator[Finding]:
    """Yields what fails when the server loads the models and gets requests.

    Raises ImageError and StartError.
    """
    # The import of tritonclient takes a third of a second, and other commands don't need it.
    from kubectl_triton.trial import run as trial

    models = sorted(repository.models)
    programs = [name for name, model in repository.models.items() if model.sources]
    configs = overrides.texts(repository)
    plan = trial.Plan(
        models, run.request_seconds, run.seconds, run.each_step, run.files, _health(store, expected, models)
    )
    with (
        signals.as_interrupt(),
        images.on_disk(store) as root,
        _started(root, expected, run, configs) as start,
    ):
        yield from tritonserver.findings(start, models, run.image, run.seconds, programs=programs)
        if start.grpc:
            yield from trial.run(start.grpc, plan, lambda text: click.echo(text, err=True))


def _started(
    root: Path, expected: Expected, run: Run, configs: Mapping[str, str]
) -> AbstractContextManager[tritonserver.Start]:
    if run.place is None:
        return in_docker.started(root, expected, run.image, run.seconds, configs)
    # The import of the client takes a tenth of a second, and other commands don't need it.
    from . import in_cluster

    return in_cluster.started(root, expected, run.image, run.seconds, configs, run.place)


def _health(store: Store, expected: Expected, models: list[str]) -> dict[str, tuple[str, bytes]]:
    """Returns the health requests in the repository by model: spec.healthRequest, and each health.json of a model."""
    paths = {model: f"{model}/{_HEALTH}" for model in models}
    if expected.health_request:
        paths[expected.health_request.split("/")[0]] = expected.health_request
    reader, found = Files(store), {}
    for model, path in paths.items():
        try:
            content = reader.read(path, _MAX_FILE)
        except OSError:  # most models have none; the check reports that of the spec
            continue
        found[model] = (path, content)
    return found
