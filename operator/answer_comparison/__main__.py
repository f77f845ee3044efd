"""`python -m answer_comparison OWN OTHERS PORT`: runs until it gets SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal

from aiohttp import web

from .comparer import Comparer


def main() -> None:
    """Compares answers until SIGTERM."""
    parser = argparse.ArgumentParser(prog="answer_comparison", description="Compares the answers of two servers.")
    parser.add_argument("own", help="URL of the canary's server")
    parser.add_argument("others", help="URL of the other servers")
    parser.add_argument("port", type=int, help="port on which copies of requests arrive")
    given = parser.parse_args()
    asyncio.run(_run(Comparer(given.own, given.others), given.port))


async def _run(comparer: Comparer, port: int) -> None:
    ended = asyncio.Event()
    # The first process of a container ignores signals that it doesn't handle.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # Servers get compressed requests as they are.
    runner = web.AppRunner(comparer.app(), access_log=None, auto_decompress=False, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    await ended.wait()
    await runner.cleanup()


if __name__ == "__main__":
    main()
