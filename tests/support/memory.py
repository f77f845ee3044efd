"""Limits and measures the memory of a process."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from triton_operator.api import quantity

from .controlplane import ROOT

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
_numbers = itertools.count(1)


def shipped_limit() -> int:
    """Returns the memory limit of the operator's container in manifests/, in bytes."""
    deployment = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return int(quantity.parse(container["resources"]["limits"]["memory"]))


def peak(process: subprocess.Popen[bytes]) -> float:
    """Returns the peak resident memory of a running process, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


@contextlib.contextmanager
def limit(process: subprocess.Popen[bytes], size: int) -> Iterator[bool]:
    """Makes the kernel kill `process` when it takes more than `size` bytes, as it kills a container.

    Yields False if this user can't create a cgroup. A test can then use only `peak`.
    """
    group = _group(f"test-{os.getpid()}-{next(_numbers)}", size)
    if group is None:
        yield False
        return
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
        yield True
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        with contextlib.suppress(OSError):
            group.rmdir()


def _group(name: str, size: int) -> Path | None:
    """Creates a cgroup of version 1 or 2 with this limit; returns None if this user may not."""
    root, file = (_V1, "memory.limit_in_bytes") if _V1.is_dir() else (_V2, "memory.max")
    group = root / name
    try:
        group.mkdir()
        (group / file).write_text(str(size))
    except OSError:
        return None
    return group
