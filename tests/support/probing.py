"""Runs a test coroutine and a part of the prober in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


def run_with(prober: Callable[[], Coroutine[Any, Any, None]], scene: Callable[[], Awaitable[None]]) -> None:
    """Runs `scene` while `prober` runs, for at most a minute. Fails if the prober ends."""

    async def both() -> None:
        task = asyncio.create_task(prober())
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
