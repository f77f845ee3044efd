"""The operator under its memory limit: as a kubelet does it, it is killed above the limit and started again."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import yaml

from support.controlplane import ROOT
from support.supervised import Supervised, supervised
from triton_operator.api import quantity

_EVERY_SECONDS = 0.1


def limit_mib() -> float:
    """The memory limit of the installation."""
    deployment = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return float(quantity.parse(container["resources"]["limits"]["memory"])) / 2**20


class Limited:
    """An operator that is watched. `peak_mib`: the most resident memory that any of its lives had."""

    def __init__(self, operator: Supervised) -> None:
        self.operator, self.peak_mib = operator, 0.0
        self._over, self._limit = threading.Event(), limit_mib()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def restarts(self) -> int:
        return len(self.operator.exit_codes)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            life = self.operator.current
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{life.process.pid}/status").read_text()
                self.peak_mib = max(self.peak_mib, _mib(status, "VmHWM"))
                if _mib(status, "VmRSS") > self._limit:
                    life.process.kill()


def _mib(status: str, field: str) -> float:
    return int(re.findall(rf"^{field}:\s+(\d+) kB", status, re.M)[0]) / 1024


@contextlib.contextmanager
def running(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Limited]:
    """An operator that has ended when the context has."""
    with supervised(kubeconfig, folder, **env) as operator:
        limited = Limited(operator)
        try:
            yield limited
        finally:
            limited.close()
