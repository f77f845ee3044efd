"""Runs an operator and restarts it whenever it ends, as a kubelet does."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from . import operator_process
from .api import MIN_WAIT_SECONDS
from .operator_process import Operator


class Supervised:
    """Keeps one replica of the operator running. `exit_codes` are the exit codes of the ended processes."""

    def __init__(self, kubeconfig: Path, folder: Path, env: dict[str, str]) -> None:
        self._kubeconfig, self._folder, self._env = kubeconfig, folder, env
        self._over, self._begun = threading.Event(), threading.Event()
        self._logs: list[Operator] = []
        self.exit_codes: list[int] = []
        self._begun_with: tuple[int, float] = (0, 0.0)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        self._begun.wait(MIN_WAIT_SECONDS)

    @property
    def current(self) -> Operator:
        """Returns the current process."""
        return self._logs[-1]

    @property
    def log(self) -> str:
        """Returns the logs of all processes."""
        return "".join(life.log for life in self._logs)

    @property
    def memory(self) -> float:
        """Returns the resident memory of the current process in MiB."""
        status = Path(f"/proc/{self.current.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def grown(self) -> float:
        """Returns the growth of the current process's memory in MiB since the first call."""
        pid, memory = self.current.process.pid, self.memory
        if self._begun_with[0] != pid:
            self._begun_with = (pid, memory)
        return memory - self._begun_with[1]

    def kill(self) -> None:
        """Kills the current process with SIGKILL and waits until the next one starts."""
        self._begun.clear()
        self.current.process.send_signal(signal.SIGKILL)
        self._begun.wait(MIN_WAIT_SECONDS)

    def close(self) -> int:
        """Ends the operator with SIGTERM, without a restart, and returns its exit code."""
        self._over.set()
        code = self.current.stop()
        self._thread.join(MIN_WAIT_SECONDS)
        return code

    def _keep(self) -> None:
        while not self._over.is_set():
            with operator_process.running(self._kubeconfig, self._folder, wait=False, **self._env) as life:
                self._logs.append(life)
                self._begun.set()
                self.exit_codes.append(life.process.wait())
            # Shorter than a kubelet's back-off, but long enough that a crash loop doesn't use all CPU.
            self._over.wait(0.5)


@contextlib.contextmanager
def supervised(kubeconfig: Path, folder: Path, **env: str) -> Iterator[Supervised]:
    found = Supervised(kubeconfig, folder, env)
    try:
        yield found
    finally:
        found.close()
