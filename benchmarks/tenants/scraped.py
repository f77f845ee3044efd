"""Runs two Prometheuses with the rules of the tenant's TritonModels.

One scrapes the tenant's servers, the other the same number of honest servers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from support.api import Api
from support.controlplane import ROOT
from support.prometheus_process import Prometheus, running, scrape_config, serving
from triton_operator.api import names

from . import attack, servers

EVERY = "10s"
"""The default scrape interval of a TritonModel."""
MAX_MIB = 2048
"""A Prometheus with more resident memory is killed, to leave memory for the other processes."""
_HONEST = (ROOT / "tests" / "rules" / "data" / "triton_24.10.txt").read_text()


class Scraped:
    """`peaks_mib`: the maximum resident memory of each, the one with hostile servers first."""

    def __init__(self, prometheuses: tuple[Prometheus, Prometheus]) -> None:
        self._prometheuses = prometheuses
        self.peaks_mib = [0.0, 0.0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def ratio(self) -> float:
        hostile, honest = self.peaks_mib
        return hostile / honest

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for place, prometheus in enumerate(self._prometheuses):
                with contextlib.suppress(OSError, IndexError):
                    self.peaks_mib[place] = max(self.peaks_mib[place], prometheus.rss_mib)
                    if prometheus.rss_mib > MAX_MIB:
                        os.kill(prometheus.pid, 9)


@contextlib.contextmanager
def scraping(api: Api, size: int, folder: Path, operator: Callable[[], str]) -> Iterator[Scraped]:
    """Runs both Prometheuses with the PodMonitors and PrometheusRules of the hostile TritonModels.

    `operator`: returns the operator's own metrics page.
    """
    within = api.in_namespace(attack.NAMESPACE)
    groups = [
        {**group, "name": f"{rules['metadata']['name']}-{number}"}
        for rules in within.list("PrometheusRule")
        for number, group in enumerate(rules["spec"]["groups"])
    ]
    monitors = [within.get("PodMonitor", attack.name(number)) for number in range(size)]
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(serving({"/metrics": operator}))
        own = {"job_name": names.METRICS_JOB, "honor_labels": True, "static_configs": [{"targets": [page]}]}
        prometheuses = []
        for kind in ("hostile", "honest"):
            configs = [own]
            for number, monitor in enumerate(monitors):
                server = f"{servers.address(number)}:{names.PORTS['metrics']}"
                if kind == "honest":
                    server = stack.enter_context(serving({"/metrics": lambda: _HONEST}))
                configs += scrape_config(monitor, {server: f"{attack.name(number)}-pod"})
            (folder / kind).mkdir()
            prometheuses.append(stack.enter_context(running(folder / kind, configs, groups, EVERY)))
            _lower_priority(prometheuses[-1].pid)
        scraped = Scraped((prometheuses[0], prometheuses[1]))
        try:
            yield scraped
        finally:
            scraped.close()


def _lower_priority(pid: int) -> None:
    """Gives the process the lowest priority, because in a cluster Prometheus runs on another node."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
