"""`kubectl triton validate`: runs the repository check on the user's machine."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from importlib import metadata
from typing import Any, TextIO

import click

from kubectl_triton import parsing
from triton_operator.api import quantity
from triton_operator.api.types import TritonModel
from triton_operator.render import expectations
from triton_operator.render import overrides as spec_models
from triton_repository_check import formats, garbage_collection, overrides, server_flags, versions
from triton_repository_check.check_table import CODES, Expected, judge
from triton_repository_check.files import Store
from triton_repository_check.findings import Finding, Severity, in_order
from triton_repository_check.load import load

from . import archives, budget, images, platforms, tritonserver, unpack

BAD, UNCHECKED = 1, 2
"""Exit codes: there are errors; nothing was checked."""


class Unchecked(click.ClickException):
    """Nothing was checked."""

    exit_code = UNCHECKED


class _Version(click.ParamType[versions.Version]):
    name = "VERSION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> versions.Version:
        try:
            return value if isinstance(value, tuple) else versions.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Platform(click.ParamType[platforms.Platform]):
    name = "OS/ARCH[/VARIANT]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> platforms.Platform:
        try:
            return value if isinstance(value, platforms.Platform) else platforms.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Bytes(click.ParamType[int]):
    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(quantity.parse(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Cores(click.ParamType[float]):
    name = "CORES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            cores = float(value)
        except ValueError:
            cores = math.nan
        if not 0 < cores < math.inf:
            self.fail(f"{value!r} is not a number above 0", param, ctx)
        return cores


@click.command("validate")
@click.argument("target", metavar="[PATH|IMAGE]", required=False)
@click.option("--path", default=None, help="Directory of the models inside of the image. Default: /models.")
@click.option(
    "--platform",
    type=_Platform(),
    default=None,
    help="Which of the images for several platforms. Default: linux/amd64 in a file, Docker's platform in Docker.",
)
@click.option("--spec", type=click.File(), help="File with a TritonModel, for its image, limits, flags and entrypoint.")
@click.option("--entrypoint", default=None, help="The model that clients call.")
@click.option("--load-models", default=None, metavar="A,B", help="Models that Triton loads. Default: all.")
@click.option("--server-version", type=_Version(), default=None, help="Server version, e.g. 2.51, or release, 24.10.")
@click.option("--cpus", type=_Cores(), default=None, help="The server's CPU limit in cores.")
@click.option("--gpus", type=click.IntRange(min=0), default=None, help="Number of the server's GPUs.")
@click.option("--shm-size", type=_Bytes(), default=None, help="Size of /dev/shm, e.g. 512Mi.")
@click.option(
    "--server-arg", multiple=True, metavar="FLAG", help="A flag as in spec.server.args, e.g. --model-config-name=edge."
)
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text", show_default=True)
@click.option(
    "--base", default=None, metavar="DIR", help="Directory of the models in the source tree, for --format sarif."
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--with-server", is_flag=True, help="Also start tritonserver in Docker, and add its errors.")
@click.option(
    "--server-image",
    default=None,
    help=f"Server image for --with-server. Default: that of --spec, or {tritonserver.IMAGE}.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=tritonserver.SECONDS,
    show_default=True,
    help="Timeout of --with-server.",
)
@garbage_collection.paused()
def validate(
    target: str | None,
    path: str | None,
    platform: platforms.Platform | None,
    spec: TextIO | None,
    form: str,
    base: str | None,
    strict: bool,
    with_server: bool,
    server_image: str | None,
    seconds: float,
    **options: Any,
) -> None:
    """Checks a model repository: a directory, an image in Docker or a registry, or an image in a tar file.

    Exits with 0 if there are no errors, with 1 if there are errors, with 2 if nothing was checked.
    """
    if target == "":
        raise click.UsageError("the name of the directory or image is empty")
    model = _only_model(spec) if spec else None
    if target is None and model is None:
        raise click.UsageError("name a directory or an image, or a TritonModel with --spec")
    name = target or (model.spec.model_image.reference if model else "")
    folder = path or (model.spec.model_image.path if model else "/models")
    image = server_image or (model.spec.server.image if model else tritonserver.IMAGE)
    expected, settings = _expected(model, **options), spec_models.overrides(model) if model else {}
    try:
        with budget.limited(), images.repository(name, folder, is_image=target is None, platform=platform) as store:
            judged = store.platform if isinstance(store, unpack.Archived) else ""
            repository, problems = load(store, settings, expected.config_name, measured=expected.storage is not None,
                                        request=expected.health_request)  # fmt: skip
            findings = judge(repository, problems, expected)
            if with_server:
                programs = [name for name, model in repository.models.items() if model.sources]
                configs = overrides.texts(repository)
                verdict = _with_server(store, expected, image, seconds, sorted(repository.models), programs, configs)
                findings = in_order((*findings, *verdict))
    except (archives.ImageError, tritonserver.DockerError, budget.BudgetError) as error:
        raise Unchecked(str(error)) from None
    if form == "sarif":
        codes = {**CODES, **tritonserver.CODES}
        text = formats.sarif(findings, codes, metadata.version("triton-operator"), base, judged)
    else:
        text = (formats.as_json if form == "json" else formats.text)(name, repository, findings, judged)
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:  # e.g. a full disk
        # Python writes the rest of its buffer at exit, and a second failure would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Unchecked(f"can't write the findings: {error.strerror}") from None
    bad = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    del repository  # before the garbage garbage_collection runs again
    sys.exit(BAD if any(finding.severity in bad for finding in findings) else 0)


def _only_model(spec: TextIO) -> TritonModel:
    try:
        models = [model for model, _ in parsing.models(spec, "default", judged="spec.models")]
    except click.ClickException as error:
        raise Unchecked(error.message) from None
    if len(models) > 1:
        raise Unchecked(f"{spec.name}: the file contains {len(models)} TritonModels, but --spec needs exactly one")
    return models[0]


def _expected(
    model: TritonModel | None,
    *,
    entrypoint: str | None,
    load_models: str | None,
    server_version: versions.Version | None,
    cpus: float | None,
    gpus: int | None,
    shm_size: int | None,
    server_arg: tuple[str, ...],
) -> Expected:
    """Returns the expectations of the TritonModel, overridden by the options."""
    arguments = (*(model.spec.server.args if model else ()), *server_arg)
    options = {
        "entrypoint": entrypoint,
        "load_models": None if load_models is None else tuple(n for n in load_models.split(",") if n),
        "server": server_version,
        "cpus": cpus,
        "gpus": gpus,
        "shared_memory": shm_size,
        "flags": server_flags.parse(arguments) if server_arg else None,
    }
    base = expectations.expected(model) if model else Expected()
    return replace(base, **{k: v for k, v in options.items() if v is not None})  # type: ignore[arg-type]


def _with_server(
    store: Store,
    expected: Expected,
    image: str,
    seconds: float,
    models: list[str],
    programs: list[str],
    configs: dict[str, str],
) -> tuple[Finding, ...]:
    with images.on_disk(store) as root, tritonserver.started(root, expected, image, seconds, configs) as start:
        return tritonserver.findings(start, models, image, seconds, programs=programs)
