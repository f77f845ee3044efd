"""Runs two Prometheuses with the rules of the tenant's TritonModels.

One scrapes the tenant's servers, the other the same number of honest servers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError

from support.api import Api, eventually
from support.controlplane import ROOT
from support.prometheus_process import Prometheus, running, scrape_config, serving
from triton_operator.api import names

from . import attack, elsewhere, servers

EVERY = "10s"
"""The default scrape interval of a TritonModel."""
APPLIED_SECONDS = 5.0
"""Maximum delay of a change of a PodMonitor. In a cluster it may take a minute, until the kubelet updates the file."""
MAX_MIB = 2048
"""A Prometheus with more resident memory is killed, to leave memory for the other processes."""
_HONEST = (ROOT / "tests" / "rules" / "data" / "triton_24.10.txt").read_text()


class Scraped:
    """`peaks_mib`: the maximum resident memory of each, the one with hostile servers first.

    `follow`: called while both run, to apply changes of PodMonitors.
    """

    def __init__(self, prometheuses: tuple[Prometheus, Prometheus], follow: Callable[[], None]) -> None:
        self._prometheuses, self._follow = prometheuses, follow
        self.peaks_mib = [0.0, 0.0]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._apply)]
        for thread in self._threads:
            thread.start()

    @property
    def ratio(self) -> float:
        hostile, honest = self.peaks_mib
        return hostile / honest

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for place, prometheus in enumerate(self._prometheuses):
                with contextlib.suppress(OSError, IndexError):
                    self.peaks_mib[place] = max(self.peaks_mib[place], prometheus.rss_mib)
                    if prometheus.rss_mib > MAX_MIB:
                        os.kill(prometheus.pid, 9)

    def _apply(self) -> None:
        while not self._over.wait(APPLIED_SECONDS):
            with contextlib.suppress(OSError, HTTPError):
                self._follow()


@contextlib.contextmanager
def scraping(api: Api, size: int, folder: Path, operator: Callable[[], str], hostile_address: str) -> Iterator[Scraped]:
    """Runs both Prometheuses with the PodMonitors and PrometheusRules of the hostile TritonModels.

    The hostile one applies changes of PodMonitors, as prometheus-operator does.

    - `operator`: returns the operator's own metrics page.
    - `hostile_address`: the address at which the operator queries the Prometheus with hostile servers.
    """
    within = api.in_namespace(attack.NAMESPACE)
    groups = [
        {**group, "name": f"{rules['metadata']['name']}-{number}"}
        for rules in within.list("PrometheusRule")
        for number, group in enumerate(rules["spec"]["groups"])
    ]
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(serving({"/metrics": operator}))
        own = {"job_name": names.METRICS_JOB, "honor_labels": True, "static_configs": [{"targets": [page]}]}
        hostile = {attack.name(number): f"{servers.address(number)}:{names.PORTS['metrics']}" for number in range(size)}
        honest = {name: stack.enter_context(serving({"/metrics": lambda: _HONEST})) for name in hostile}

        for name in hostile:
            eventually(lambda n=name: within.find("PodMonitor", n), 60, f"the PodMonitor {name}")

        def configs(targets: Mapping[str, str]) -> list[dict[str, Any]]:
            monitors = {monitor["metadata"]["name"]: monitor for monitor in within.list("PodMonitor")}
            jobs = [
                scrape_config(monitors[name], {server: f"{name}-pod"})
                for name, server in targets.items()
                if name in monitors
            ]
            return [own, *itertools.chain.from_iterable(jobs)]

        def start(kind: str, targets: Mapping[str, str], address: str = "") -> Prometheus:
            (folder / kind).mkdir()
            prometheus = stack.enter_context(running(folder / kind, configs(targets), groups, EVERY, address))
            elsewhere.move(prometheus.pid)
            return prometheus

        # The honest one first, because the operator deletes PodMonitors as soon as the other one runs.
        quiet = start("honest", honest)
        prometheuses = start("hostile", hostile, hostile_address), quiet
        scraped = Scraped(prometheuses, lambda: prometheuses[0].scrape(configs(hostile)))
        try:
            yield scraped
        finally:
            scraped.close()
