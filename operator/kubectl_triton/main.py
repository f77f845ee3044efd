"""`kubectl triton`: commands for users of TritonModels."""

from __future__ import annotations

import click

from .calibrate.command import calibrate
from .explain.command import explain_alert
from .models.commands import config, load, models, reload, unload
from .render import render
from .status.command import status
from .top.command import top
from .validate.command import validate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="triton-operator", message="%(version)s")
def main() -> None:
    """Checks model repositories, renders TritonModels without a cluster, and shows their status.

    Lists, loads and unloads the models of running servers, and measures what one server handles.
    """


for command in (validate, render, status, top, explain_alert, models, config, load, unload, reload, calibrate):
    main.add_command(command)
