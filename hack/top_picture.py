"""Draws the picture of `kubectl triton top` in the README, from fixed sample data."""

from __future__ import annotations

import asyncio
import re

from kubectl_triton.samples import Alert
from kubectl_triton.top import fleet
from kubectl_triton.top.detail import Reading
from kubectl_triton.top.source import Overview
from kubectl_triton.top.view import Top

_TITLE = "kubectl triton top -A --prometheus http://localhost:9090"
_SIZE = (153, 10)
_ROWS = [
    fleet.Row("vision/detector", "Ready", True, 3, 4, 71.2, 80, 2.7, 0.021, 0.094, 0.0042, 0.0, "3 → 4", True, ()),
    fleet.Row("vision/plates", "Ready", True, 2, 2, 19.4, 60, 0.65, 0.012, 0.031, 0.0006, 0.001, "steady", True, ()),
    fleet.Row("speech/asr", "Ready", True, 8, 8, 214, 180, 9.5, 0.38, 2.1, 0.96, 0.004, "steady", True,
              (Alert("TritonModelQpsOverflow", "critical"), Alert("TritonModelAtMaxReplicas", "warning"))),
    fleet.Row("speech/tts", "LoadingModels", False, 0, 1, 0, 40, 0, None, None, None, None, "-", True, ()),
    fleet.Row("search/embedding", "Ready", True, 5, 5, 402, 900, 2.2, 0.0031, 0.0088, 0.0002, 0.0,
              "ScaledUp, at least 5", True, ()),
    fleet.Row("search/rerank", "ModelLoadFailed", False, 0, 2, 0, None, None, None, None, None, None, "-", True,
              (Alert("TritonModelNotServing", "critical"),)),
]  # fmt: skip


class _Samples:
    def overview(self) -> Overview:
        return Overview(sorted(_ROWS, key=lambda row: row.key))

    def reading(self, key: str) -> Reading:
        raise NotImplementedError


def text() -> str:
    """Returns the picture as SVG. It loads no font from the network."""

    async def draw() -> str:
        app = Top(_Samples(), "", 3600.0)
        async with app.run_test(size=_SIZE) as pilot:
            while not getattr(app.screen, "overview", Overview([])).rows:
                await pilot.pause(0.02)
            await pilot.press("j", "j", "j", "j")
            before, now = "", app.export_screenshot(title=_TITLE)
            while before != now:  # the columns get their widths when the program is idle
                await pilot.pause(0.2)
                before, now = now, app.export_screenshot(title=_TITLE)
            return now

    return re.sub(r"@font-face \{.*?\}\s*", "", asyncio.run(draw()), flags=re.DOTALL)
