"""`kubectl triton`: commands for users of TritonModels."""

from __future__ import annotations

from typing import Any

import click

from triton_repository_check.text import one_line

from .calibrate.command import calibrate
from .canary import abort, promote
from .explain.command import explain_alert
from .models.commands import config, load, models, reload, unload
from .render import render
from .rule_files import rules
from .status.command import status
from .top.command import top
from .validate.command import validate


class _Commands(click.Group):
    """Prints errors as printable characters: they quote files, images, servers and clusters."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise click.UsageError(_printable(error), error.ctx) from None
        except click.ClickException as error:
            click.echo(f"Error: {_printable(error)}", err=True)
            ctx.exit(error.exit_code)


def _printable(error: click.ClickException) -> str:
    return "\n".join(map(one_line, error.format_message().split("\n")))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="triton-operator", message="%(version)s")
def main() -> None:
    """Checks model repositories, renders TritonModels without a cluster, and shows their status.

    Lists, loads and unloads the models of running servers, measures what one server handles, and ends canaries.
    """


for command in (
    validate, render, rules, status, top, explain_alert, models, config, load, unload, reload, calibrate, promote,
    abort,
):  # fmt: skip
    main.add_command(command)
