"""`python -m latency_sampler URL FOLDER PORT`: runs until it gets SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from pathlib import Path

from prometheus_client import CollectorRegistry

from metrics_page import serve

from .sampler import Sampler
from .versions import OLDEST, Version, parse

_log = logging.getLogger(__name__)
_STEP_SECONDS = 1.0


def main() -> None:
    """Measures until SIGTERM."""
    parser = argparse.ArgumentParser(prog="latency_sampler", description="Measures the time of a server's requests.")
    parser.add_argument("url", help="URL of the server")
    parser.add_argument("folder", type=Path, help="folder in which the server writes traces")
    parser.add_argument("port", type=int, help="port of the metrics page")
    parser.add_argument(
        "--oldest", type=_version, default=OLDEST, metavar="VERSION", help="oldest version of Triton that may trace"
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()
    # The first process of a container ignores signals that it doesn't handle.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    sampler = Sampler(given.url, given.folder, oldest=given.oldest)
    registry = CollectorRegistry()
    registry.register(sampler.histograms)
    serve(given.port, registry)
    while not ended.wait(_STEP_SECONDS):
        try:
            sampler.step()
        except Exception:  # a container that ends makes its pod unready
            sampler.histograms.works = False
            _log.exception("an error of the sampler itself; it continues")


def _version(text: str) -> Version:
    version = parse(text)
    if version is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no version such as 2.57")
    return version


if __name__ == "__main__":
    main()
