"""Runs a real Prometheus, and a server of pages that it scrapes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from hack.world import settings

from . import children, evidence, ports
from .api import START_SECONDS, eventually

Json = dict[str, Any]
Page = Callable[[], str]


class Prometheus:
    """A running Prometheus, as the process `pid`. `file`: its configuration."""

    def __init__(self, address: str, pid: int, file: Path) -> None:
        self.address, self.pid, self._file = address, pid, file

    @property
    def rss_mib(self) -> float:
        """Returns its current memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"^VmRSS:\s+(\d+) kB", status, re.M)[0]) / 1024

    def scrape(self, configs: list[Json]) -> None:
        """Replaces the scrape configurations."""
        self.configure(scrape_configs=configs)

    def configure(self, **fields: list[Any]) -> None:
        """Replaces fields of the configuration."""
        config = yaml.safe_load(self._file.read_text())
        self._file.write_text(yaml.safe_dump({**config, **fields}))
        os.kill(self.pid, signal.SIGHUP)

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Calls the API and returns the `data` of the response. Fails with Prometheus' error message."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"{parameters}: {json.load(refusal)['error']}") from refusal

    def metrics(self) -> str:
        """Returns the page of its own metrics."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as page:
            return page.read().decode()

    def value(self, expr: str) -> float | None:
        """Returns the current value of `expr`, or None if it has none or several."""
        series = self.ask("query", query=expr)["result"]
        return float(series[0]["value"][1]) if len(series) == 1 else None


def scrape_config(monitor: Json, targets: Mapping[str, str]) -> list[Json]:
    """Returns the scrape configuration that prometheus-operator renders from a PodMonitor, for these addresses.

    `targets`: host:port → pod. The labels of the targets are static, because there is no Kubernetes to discover them.
    """
    spec, metadata = monitor["spec"], monitor["metadata"]
    (endpoint,) = spec["podMetricsEndpoints"]
    names = ("sampleLimit", "bodySizeLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit")
    relabelings = [_snake(rule) for rule in endpoint["relabelings"] if rule.get("targetLabel")]
    job = f"{metadata['namespace']}/{metadata['name']}"
    return [
        {
            "job_name": f"podMonitor/{job}/0",
            **_snake({name: spec[name] for name in names if name in spec}),
            **_snake({n: endpoint[n] for n in ("honorLabels", "honorTimestamps", "followRedirects") if n in endpoint}),
            "relabel_configs": relabelings,
            "metric_relabel_configs": [_snake(rule) for rule in endpoint["metricRelabelings"]],
            "static_configs": [
                {"targets": [address], "labels": {"namespace": metadata["namespace"], "pod": pod, "job": job}}
                for address, pod in targets.items()
            ],
        }
    ]


def _snake(fields: Json) -> Json:
    return {re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), k): v for k, v in fields.items()}


@contextlib.contextmanager
def serving(pages: Mapping[str, Page]) -> Iterator[str]:
    """Runs a server that renders each page for every request, and yields its host:port. Without a page it is busy."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path]().encode()
            self.send_response(200 if body else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def running(
    folder: Path,
    scrape_configs: list[Json],
    groups: list[Json],
    every: str = "1s",
    address: str = "",
    options: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes and evaluates at this interval while the context lasts.

    - `every`: "" keeps the intervals of the groups and of the scrape configurations.
    - `address`: its host:port; by default a free port.
    - `options`: further options of the program.
    """
    binary = shutil.which("prometheus", path=settings.search_path())
    assert binary, "prometheus isn't on PATH; run hack/world.sh rules, or skip these tests with -m 'not rules'"
    rule_groups = [{**group, "interval": every} for group in groups] if every else groups
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups}))
    config = {
        "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), every or "10s"),
        "rule_files": ["rules.yaml"],
        "scrape_configs": scrape_configs,
    }
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    address = address or f"127.0.0.1:{ports.free()[0]}"
    command = [
        binary, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", *options,
    ]  # fmt: skip
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = children.start(command, stdout=out, stderr=out)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
            return True
        return False

    try:
        with evidence.on_failure(log.name, evidence.of_file(log)):
            eventually(ready, START_SECONDS, log.read_text)
            yield Prometheus(address, process.pid, file)
    finally:
        process.kill()
        process.wait()
