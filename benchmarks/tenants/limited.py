"""Runs the operator under its memory limit: like a kubelet, kills it above the limit and starts it again."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import yaml

from support import operator_process
from support.controlplane import ROOT
from support.operator_process import Operator, Restart
from triton_operator.api import quantity

_EVERY_SECONDS = 0.1


def limit_mib() -> float:
    """Returns the memory limit of the installation."""
    deployment = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return float(quantity.parse(container["resources"]["limits"]["memory"])) / 2**20


class Limited:
    """An operator whose memory is watched. `peak_mib`: the maximum resident memory of all its processes."""

    def __init__(self, operator: Operator) -> None:
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
            process = self.operator.process
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                self.peak_mib = max(self.peak_mib, _mib(status, "VmHWM"))
                if _mib(status, "VmRSS") > self._limit:
                    process.kill()


def _mib(status: str, field: str) -> float:
    return int(re.findall(rf"^{field}:\s+(\d+) kB", status, re.M)[0]) / 1024


@contextlib.contextmanager
def running(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Limited]:
    """Runs an operator while the context lasts."""
    with operator_process.running(kubeconfig, folder, wait=False, restart=Restart.ALWAYS, **env) as operator:
        limited = Limited(operator)
        try:
            yield limited
        finally:
            limited.close()
