"""The dashboards as static pages in a headless Chromium, with data of a real Prometheus that scrapes recorded pages.

UPDATE_PICTURES=1 writes the pictures in docs/images.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack import boards
from rules.pages import NAME, NAMESPACE, ROOT, SimulatedTargets, scrape_configs
from support import ports
from support.prometheus_process import running, serving

pytestmark = pytest.mark.docs

PICTURES = bool(os.environ.get("UPDATE_PICTURES"))
SECONDS = 120
"""Timeout until every panel has data."""
NAMES = sorted(file.stem for file in boards.BOARDS.glob("*.json"))
CHOSEN = {"namespace": NAMESPACE, "tritonmodel": NAME}
HEIGHTS = {"end-to-end": 1780, "modules": 2300, "operator": 1800, "resources": 1100}


def plotly() -> Path:
    file = next(iter((ROOT / ".cache" / "docs").glob(boards.PLOTLY)), None)
    assert file, "there is no plotly.min.js; run make docs-test"
    return file


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Returns the folder with the pages, made when every panel has data, or after the timeout."""
    folder, address = tmp_path_factory.mktemp("boards"), f"127.0.0.1:{ports.free()[0]}"
    world, end = SimulatedTargets(), time.monotonic() + SECONDS
    with (
        serving(world.pages()) as targets,
        running(tmp_path_factory.mktemp("prometheus"), scrape_configs(targets), world.groups(), address=address),
    ):
        if PICTURES:
            time.sleep(115)  # until the limit of the first seconds is no longer shown
        while time.monotonic() < end:
            time.sleep(2)
            files = list(boards.write(folder, f"http://{address}", plotly(), CHOSEN, minutes=1.5))
            if not any('"series": []' in data(page) for page in files):
                break
        yield folder


def data(page: Path) -> str:
    """Returns the data of the panels, without the rows."""
    match = re.search(r"const panels = (.*), board =", page.read_text())
    assert match
    return re.sub(r'\{"kind": "row".*?"series": \[\]\}', "", match[1])


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Chromium without a window until it ends."""
    program = shutil.which("chromium")
    if not program:
        pytest.skip("This machine has no Chromium: apt-get install chromium")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
               "--virtual-time-budget=20000", "--hide-scrollbars"]  # fmt: skip
    return subprocess.run([program, *options, *arguments], capture_output=True, text=True, timeout=180, check=True)


@pytest.mark.parametrize("name", NAMES)
def test_each_panel_of_a_board_has_data_and_the_browser_complains_about_nothing(pages: Path, name: str) -> None:
    result = chromium("--dump-dom", f"file://{pages / f'{name}.html'}")
    assert "data-error" not in result.stdout
    complaints = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    count = re.search(r'data-panels="(\d+)"', result.stdout)
    assert count, result.stdout[-500:]
    assert int(count[1]) >= 9
    empty = re.findall(r'<div class="panel \w+ empty"[^>]*><h3[^>]*>([^<]*)<', result.stdout)
    assert empty == []
    # Each graph is an SVG of its own, drawn by Plotly.
    assert result.stdout.count('class="plot js-plotly-plot"') == result.stdout.count('class="panel graph"')


@pytest.mark.skipif(not PICTURES, reason="UPDATE_PICTURES=1 writes the pictures")
@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_of_the_docs_are_written(pages: Path, name: str) -> None:
    picture = ROOT / "docs" / "images" / f"board-{name}.png"
    size = f"--window-size=1400,{HEIGHTS[name]}"
    chromium(f"--screenshot={picture}", size, f"file://{pages / f'{name}.html'}")
    assert picture.stat().st_size > 10_000
