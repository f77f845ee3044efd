"""Runs a test coroutine and a part of the prober in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from triton_operator.probe.fetch import HttpClient


def run_with(prober: Callable[[HttpClient], Coroutine[Any, Any, None]], scene: Callable[[], Awaitable[None]]) -> None:
    """Runs `scene` while `prober` runs, for at most a minute. Fails if the prober ends."""

    async def both() -> None:
        task = asyncio.create_task(prober(HttpClient()))
        try:
            async with asyncio.timeout(60):
                await scene()
            assert not task.done()
        finally:
            task.cancel()

    asyncio.run(both())


async def until(holds: Callable[[], Any]) -> None:
    while not holds():
        await asyncio.sleep(0.005)
