"""The site of the documentation in a headless Chromium: search, links, and what the browser complains about."""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.docs

SITE = Path(__file__).parents[2] / ".cache" / "site"
SECONDS = 60
"""Timeout of each wait for the browser."""
REPOSITORY = "https://github.com/triton-operator/triton-operator"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serves the built site and returns its URL."""
    assert (SITE / "index.html").exists(), "there is no site; run make docs"
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Starts Chromium without a window."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("This machine has no Chromium with its driver: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


def until(browser: Any, condition: Any) -> Any:
    """Waits until the condition returns something true, and returns it."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, SECONDS).until(condition)


def find(browser: Any, css: str) -> list[Any]:
    return list(browser.find_elements("css selector", css))


def test_the_first_page_is_the_tutorial_and_loads_nothing_from_elsewhere(site: str, browser: Any) -> None:
    browser.get(f"{site}/index.html")
    assert find(browser, "h1")[0].text.startswith("In five minutes")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith((site, "data:")) or "api.github.com" in name for name in loaded), loaded
    # The header asks GitHub for the number of stars; without internet that fails.
    complaints = [
        e for e in browser.get_log("browser") if e["level"] == "SEVERE" and "api.github.com" not in e["message"]
    ]
    assert complaints == []
    assert all(browser.execute_script("return Array.from(document.images, i => i.naturalWidth)"))


def test_a_search_finds_the_page_of_a_code(site: str, browser: Any) -> None:
    browser.get(f"{site}/index.html")
    until(browser, lambda b: find(b, "[data-md-component=search-query]"))
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    field = find(browser, "[data-md-component=search-query]")[0]
    until(browser, lambda _: field.is_displayed())
    field.send_keys("TR101")
    until(browser, lambda b: find(b, ".md-search-result__link"))
    result = find(browser, ".md-search-result__link")[0]
    until(browser, lambda _: result.is_displayed())
    browser.get(result.get_attribute("href"))
    assert "/validate.html" in browser.current_url
    assert "TR101" in find(browser, "article")[0].text


def test_a_link_of_the_tutorial_leads_to_its_heading(site: str, browser: Any) -> None:
    browser.get(f"{site}/index.html")
    link = find(browser, "article a[href$='on-call.html#change-a-threshold']")[0]
    browser.execute_script("arguments[0].click()", link)
    until(browser, lambda b: b.current_url.endswith("on-call.html#change-a-threshold"))
    heading = until(browser, lambda b: find(b, "#change-a-threshold"))[0]
    assert heading.text.startswith("Change a threshold")

    def visible(b: Any) -> bool:
        with contextlib.suppress(Exception):
            top = b.execute_script("return document.getElementById('change-a-threshold').getBoundingClientRect().top")
            return bool(0 <= top < 900)
        return False

    until(browser, visible)


def test_links_to_files_of_the_repository_lead_to_the_repository(site: str, browser: Any) -> None:
    browser.get(f"{site}/index.html")
    targets = [link.get_attribute("href") for link in find(browser, "article a")]
    assert f"{REPOSITORY}/blob/main/model_images/template/README.md" in targets


def test_the_lists_of_runbooks_and_decisions_exist(site: str, browser: Any) -> None:
    for folder in ("runbooks", "decisions"):
        browser.get(f"{site}/{folder}/index.html")
        assert len(find(browser, "article li a")) > 15


@pytest.mark.parametrize(
    ("name", "last"),
    [("status-start", "detector is Ready"), ("status-failure", "detector fails: ModelLoadFailed")],
)
def test_a_recording_plays_from_its_command_to_its_last_line(site: str, browser: Any, name: str, last: str) -> None:
    browser.get(f"{site}/images/{name}.svg")
    seconds = browser.execute_script("return document.getAnimations()[0].effect.getTiming().duration") / 1000
    assert 10 < seconds < 120
    first, end = visible_text(browser, 0.01), visible_text(browser, seconds - 0.01)
    assert first.startswith("$ kubectl ")
    assert first.count("\n") < end.count("\n")
    assert last not in first
    assert last in end


def visible_text(browser: Any, seconds: float) -> str:
    """Returns the lines in the window of an animated SVG, at this time of the animation."""
    return str(
        browser.execute_script(
            """
            const film = document.getAnimations()[0];
            film.pause();
            film.currentTime = 1000 * arguments[0];
            const frame = document.querySelector("rect").getBoundingClientRect(), lines = new Map();
            for (const text of document.querySelectorAll("text")) {
              const {top, bottom} = text.getBoundingClientRect(), y = text.getAttribute("y");
              if (top > frame.top && bottom < frame.bottom)
                lines.set(y, (lines.get(y) ?? "") + text.textContent.replaceAll("\\u00a0", " "));
            }
            return Array.from(lines.values()).join("\\n");
            """,
            seconds,
        )
    )
