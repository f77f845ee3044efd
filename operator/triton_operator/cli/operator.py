"""`triton-operator run`: the operator itself."""

from __future__ import annotations

import asyncio
import logging
import os

import click

from triton_operator.runtime import logs
from triton_operator.runtime.app import App
from triton_operator.runtime.settings import Settings


@click.group()
def main() -> None:
    """The operator for NVIDIA Triton; it is set up by environment variables (docs/operations.md)."""


@main.command()
def run() -> None:
    """Run the operator until it gets SIGTERM."""
    try:
        settings = Settings.from_environment()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    logs.configure(settings.log_format, settings.log_level)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    code = await App(settings).run()
    # A normal exit, that of the loop too, waits for threads that hang on the network, and the Lease is gone by now.
    logging.shutdown()
    os._exit(code)
