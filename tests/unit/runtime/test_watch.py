"""The watches, without kopf."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from triton_operator.runtime.watch import _while_open


async def requests(*, closes_before: bool) -> AsyncIterator[int]:
    """Yields the status of a request, after something else has closed the session."""
    async with aiohttp.ClientSession() as session:
        if closes_before:
            await session.close()
        else:
            # The state that `close` leaves while a request is being prepared.
            session._connector, session.__class__.closed = None, property(lambda _: False)  # type: ignore[assignment]
        async with session.get("http://127.0.0.1:9") as response:
            yield response.status


@pytest.mark.parametrize("closes_before", [True, False])
def test_a_closed_session_is_a_failed_connection(closes_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp.ClientSession, "closed", aiohttp.ClientSession.closed)

    async def run() -> None:
        async for _ in _while_open(requests(closes_before=closes_before)):
            pass

    with pytest.raises(aiohttp.ClientConnectionError):
        asyncio.run(run())


def test_other_errors_are_raised() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise RuntimeError("other")

    async def run() -> None:
        async for _ in _while_open(broken()):
            pass

    with pytest.raises(RuntimeError, match="other"):
        asyncio.run(run())
