"""`kubectl triton validate`: runs the repository check on the user's machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any, TextIO

import click

from kubectl_triton import options, parsing
from triton_operator.api import quantity
from triton_operator.api.types import TritonModel
from triton_operator.render import expectations
from triton_operator.render import overrides as spec_models
from triton_repository_check import formats, garbage_collection, server_flags
from triton_repository_check.check_table import CODES, judge
from triton_repository_check.expected import OPTIONS, Expected, Option
from triton_repository_check.findings import Finding, Severity, in_order
from triton_repository_check.load import load
from triton_repository_check.versions import Version

from . import archives, budget, images, platforms, server_args, server_pod, tritonserver, unpack, with_server

BAD, UNCHECKED = 1, 2
"""Exit codes: there are errors; nothing was checked."""


class Unchecked(click.ClickException):
    """Nothing was checked."""

    exit_code = UNCHECKED


class _Platform(click.ParamType[platforms.Platform]):
    name = "OS/ARCH[/VARIANT]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> platforms.Platform:
        try:
            return value if isinstance(value, platforms.Platform) else platforms.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Setting(click.ParamType[Any]):
    """The value of a setting of the check."""

    def __init__(self, option: Option) -> None:
        self.name = option.metavar or "TEXT"
        self._read: Callable[[str], Any] = _READ.get(option.name, option.read)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _bytes(text: str) -> int:
    return int(quantity.parse(text))


_READ: Mapping[str, Callable[[str], Any]] = {"shared_memory": _bytes}
"""What people write in another form than the operator."""


class _Command(click.Command):
    """A command in which `--with-server` needs no value, as the options of kubectl do: `--with-server=cluster`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--with-server=docker" if arg == "--with-server" else arg for arg in args])


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of the check's settings."""
    for option in reversed([option for option in OPTIONS if option.plugin]):
        kind = str if option.many else _Setting(option)
        add = click.option(
            option.plugin, option.name, type=kind, multiple=option.many, metavar=option.metavar, help=option.help
        )
        command = add(command)
    return command


@click.command("validate", cls=_Command)
@click.argument("target", metavar="[PATH|IMAGE]", required=False)
@click.option("--path", default=None, help="Directory of the models inside of the image. Default: /models.")
@click.option(
    "--platform",
    type=_Platform(),
    default=None,
    help="Which of the images for several platforms. Default: linux/amd64 in a file, Docker's platform in Docker.",
)
@click.option("--spec", type=click.File(), help="File with a TritonModel, for its image, limits, flags and entrypoint.")
@_settings
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text", show_default=True)
@click.option(
    "--base", default=None, metavar="DIR", help="Directory of the models in the source tree, for --format sarif."
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option(
    "--with-server", "where", type=click.Choice(["docker", "cluster"]), default=None, metavar="",
    help="Also start tritonserver in Docker, or with --with-server=cluster in a pod, send requests, add what fails.",
)  # fmt: skip
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
    help="Timeout of --with-server until the models are loaded.",
)
@with_server.options
@options.cluster
@garbage_collection.paused()
def validate(
    target: str | None,
    path: str | None,
    platform: platforms.Platform | None,
    spec: TextIO | None,
    form: str,
    base: str | None,
    strict: bool,
    where: str | None,
    server_image: str | None,
    seconds: float,
    input_data: tuple[str, ...],
    each_step: bool,
    request_seconds: float,
    namespace: str | None,
    context: str | None,
    **settings: Any,
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
    expected, configs = _expected(model, **settings), spec_models.overrides(model) if model else {}
    of_flags = _of_flags(model.spec.server.args if model else (), settings["flags"], expected.server)
    try:
        with budget.limited(), images.repository(name, folder, is_image=target is None, platform=platform) as store:
            judged = store.platform if isinstance(store, unpack.Archived) else ""
            repository, problems = load(store, configs, expected.config_name, measured=expected.storage is not None,
                                        request=expected.health_request)  # fmt: skip
            findings = in_order((*judge(repository, problems, expected), *of_flags))
            if where:
                files = with_server.files(input_data, expected.entrypoint)
                place = server_pod.Place(model, namespace, context) if where == "cluster" else None
                run = with_server.Run(image, seconds, request_seconds, each_step, files, place)
                findings = in_order((*findings, *with_server.findings(store, repository, expected, run)))
    except (archives.ImageError, tritonserver.StartError, budget.BudgetError) as error:
        raise Unchecked(str(error)) from None
    except KeyboardInterrupt:
        raise Unchecked("stopped") from None
    if form == "sarif":
        codes = {**CODES, **server_args.CODES, **with_server.CODES}
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
        models = [model for model, _ in parsing.models(spec, "", judged="spec.models")]
    except click.ClickException as error:
        raise Unchecked(error.message) from None
    if len(models) > 1:
        raise Unchecked(f"{spec.name}: the file contains {len(models)} TritonModels, but --spec needs exactly one")
    return models[0]


def _of_flags(of_spec: Sequence[str], of_command: Sequence[str], server: Version | None) -> list[Finding]:
    """Returns the findings about the arguments of spec.server.args and --server-arg."""
    places = [f"spec.server.args[{index}]" for index, _ in enumerate(of_spec)]
    return [*server_args.findings((*of_spec, *of_command), (*places, *("--server-arg" for _ in of_command)), server)]


def _expected(model: TritonModel | None, *, flags: tuple[str, ...], **options: Any) -> Expected:
    """Returns the expectations of the TritonModel, overridden by the options."""
    arguments = (*(model.spec.server.args if model else ()), *flags)
    given = {**options, "flags": server_flags.parse(arguments) if flags else None}
    base = expectations.expected(model) if model else Expected()
    return replace(base, **{name: value for name, value in given.items() if value is not None})
