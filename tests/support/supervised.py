"""An operator that is started again whenever it ends, as a kubelet does it."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from . import operator_process
from .api import PATIENCE
from .operator_process import Operator


class Supervised:
    """Keeps one replica of the operator running. `ends`: the exit code of every life that is over."""

    def __init__(self, kubeconfig: Path, folder: Path, env: dict[str, str]) -> None:
        self._kubeconfig, self._folder, self._env = kubeconfig, folder, env
        self._over, self._begun = threading.Event(), threading.Event()
        self._logs: list[Operator] = []
        self.ends: list[int] = []
        self._begun_with: tuple[int, float] = (0, 0.0)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        self._begun.wait(PATIENCE)

    @property
    def now(self) -> Operator:
        """The life of this moment."""
        return self._logs[-1]

    @property
    def log(self) -> str:
        """What all its lives have written."""
        return "".join(life.log for life in self._logs)

    @property
    def memory(self) -> float:
        """Resident memory of the present life, in MiB."""
        status = Path(f"/proc/{self.now.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def grown(self) -> float:
        """By how many MiB the present life has grown since this was asked first."""
        pid, memory = self.now.process.pid, self.memory
        if self._begun_with[0] != pid:
            self._begun_with = (pid, memory)
        return memory - self._begun_with[1]

    def kill(self) -> None:
        """kill -9 of the present life; returns when the next has begun."""
        self._begun.clear()
        self.now.process.send_signal(signal.SIGKILL)
        self._begun.wait(PATIENCE)

    def close(self) -> int:
        """SIGTERM, and no further life; the exit code."""
        self._over.set()
        code = self.now.stop()
        self._thread.join(PATIENCE)
        return code

    def _keep(self) -> None:
        while not self._over.is_set():
            with operator_process.running(self._kubeconfig, self._folder, wait=False, **self._env) as life:
                self._logs.append(life)
                self._begun.set()
                self.ends.append(life.process.wait())
            # Less than a kubelet waits, and more than nothing: one that can't start shows, and doesn't burn.
            self._over.wait(0.5)


@contextlib.contextmanager
def supervised(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Supervised]:
    found = Supervised(kubeconfig, folder, env)
    try:
        yield found
    finally:
        found.close()
