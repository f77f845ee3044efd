"""A process under the memory limit of a container, and what it took."""

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
    """The memory limit of the operator's container in manifests/, in bytes."""
    deployment = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return int(quantity.parse(container["resources"]["limits"]["memory"]))


def peak(process: subprocess.Popen[bytes]) -> float:
    """The most resident memory that a running process has had so far, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


@contextlib.contextmanager
def limit(process: subprocess.Popen[bytes], size: int) -> Iterator[bool]:
    """Lets the kernel kill `process` when it takes more than `size` bytes, as it kills a container. Yields False where
    this user can't make a cgroup: a test then has only `peak`."""
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
    """A new cgroup of version 1 or 2 with this limit; None where this user can't make one."""
    root, file = (_V1, "memory.limit_in_bytes") if _V1.is_dir() else (_V2, "memory.max")
    group = root / name
    try:
        group.mkdir()
        (group / file).write_text(str(size))
    except OSError:
        return None
    return group
