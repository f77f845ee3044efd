"""Options that several commands of `kubectl triton` have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Function = Callable[..., Any]


def cluster(command: Function) -> Function:
    """Adds the options --namespace and --context."""
    command = click.option("--context", default=None, help="Context of the kubeconfig. Default: the current context.")(
        command
    )
    return click.option("--namespace", "-n", default=None, help="Namespace. Default: that of the context.")(command)


def change(command: Function) -> Function:
    """Adds the arguments NAME and MODEL, and the options of commands that change the models of servers."""
    for add in (
        click.option(
            "--parallel",
            type=click.IntRange(1, 16),
            default=1,
            show_default=True,
            help="Servers that change at the same time.",
        ),
        click.option(
            "--timeout",
            type=click.IntRange(1, 3600),
            default=300,
            show_default=True,
            help="Seconds that each server has.",
        ),
        click.argument("model"),
        click.argument("name"),
    ):
        command = add(command)
    return command
