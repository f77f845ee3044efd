"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import CollectorRegistry

Check = Callable[[], str]
"""What is wrong, in words; "" where nothing is."""


async def serve(port: int, healthy: Check, ready: Check, registry: CollectorRegistry) -> web.AppRunner:
    """Serves until the returned runner is cleaned up. That the loop answers at all is part of the check."""

    def check(judge: Check) -> Callable[[web.Request], object]:
        async def handle(_: web.Request) -> web.Response:
            wrong = judge()
            return _last(web.Response(text=wrong or "ok", status=503 if wrong else 200))

        return handle

    async def metrics(_: web.Request) -> web.Response:
        return _last(web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}))

    app = web.Application()
    app.router.add_get("/healthz", check(healthy))  # type: ignore[arg-type]
    app.router.add_get("/readyz", check(ready))  # type: ignore[arg-type]
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def _last(response: web.Response) -> web.Response:
    """`response` as its connection's last: one that is kept open is a task, for which kopf would wait at its end."""
    response.force_close()
    return response
