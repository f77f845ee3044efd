"""`triton-operator run`: runs the operator."""

from __future__ import annotations

import asyncio
import gc
import logging
import os

import click

from triton_operator.runtime import logs
from triton_operator.runtime.app import App
from triton_operator.runtime.settings import Settings


@click.group()
def main() -> None:
    """Operator for NVIDIA Triton. Environment variables configure it (docs/operations.md)."""


@main.command()
def run() -> None:
    """Run the operator until it gets SIGTERM."""
    try:
        settings = Settings.from_environment()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    logs.configure(settings.log_format, settings.log_level)
    _collect_less_garbage()
    asyncio.run(_run(settings))


def _collect_less_garbage() -> None:
    """Makes Python's garbage collector search less often and less.

    By default it searches after 700 new objects, and reading one rule makes more of them. It searched all modules, too,
    which live as long as the process, and stopped all threads for 100 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


async def _run(settings: Settings) -> None:
    code = await App(settings).run()
    # A normal exit would wait for threads that hang on the network, after the operator has released the Lease.
    logging.shutdown()
    os._exit(code)
