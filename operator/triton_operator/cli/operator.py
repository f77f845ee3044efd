"""`triton-operator run`: runs the operator."""

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
    """Operator for NVIDIA Triton. Environment variables configure it (docs/operations.md)."""


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
    # A normal exit would wait for threads that hang on the network, after the operator has released the Lease.
    logging.shutdown()
    os._exit(code)
