"""A Docker daemon that answers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hack.world import docker, ledger, settings
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe

_START_SECONDS, _END_SECONDS = 60, 10
_CGROUPS, _INTERFACES, _PROCESSES = Path("/sys/fs/cgroup"), Path("/sys/class/net"), Path("/proc")
_PID_FILES = [Path("/var/run/docker.pid"), Path("/var/run/docker/containerd/containerd.pid")]
"""Files of a killed Docker. If another process or a zombie has such a number now, Docker waits for it and fails."""
# The bit of CAP_SYS_RESOURCE in a set of capabilities.
_SYS_RESOURCE = 1 << 24


def start(job: Job) -> None:
    """Starts Docker, with systemd if that runs. Raises FailedError if the user isn't root or Docker doesn't answer."""
    if os.geteuid() != 0:
        raise FailedError("Docker doesn't answer", "start its service, and check that you are in the group `docker`")
    if Path("/run/systemd/system").exists():
        job.run("systemctl", "start", "docker")
    else:
        _start_daemon(job)
    for _ in range(_START_SECONDS):
        if docker.answers():
            return
        time.sleep(1)
    raise FailedError(f"Docker didn't start within {_START_SECONDS} s")


def _start_daemon(job: Job) -> None:
    """Starts dockerd in its own session and with its own log, so that it keeps running after this program ends."""
    ledger.write("dockerd", "started")
    end_leftovers(job.run)
    for stale in _PID_FILES:
        stale.unlink(missing_ok=True)
    options = []
    if not _capabilities() & _SYS_RESOURCE:
        # Some sandboxes and containers lack CAP_SYS_RESOURCE, which Docker gives to privileged containers.
        runtime = settings.HERE / "files" / "runc-without-sys-resource"
        installed = settings.BIN / runtime.name
        settings.BIN.mkdir(parents=True, exist_ok=True)
        installed.write_bytes(runtime.read_bytes())
        installed.chmod(0o755)
        options = [f"--add-runtime=reduced={installed}", "--default-runtime=reduced"]
    with (settings.LOGS / "dockerd").open("ab") as log:
        subprocess.Popen(
            ["dockerd", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    job.say(f"started dockerd {' '.join(options)}")


def end_leftovers(run: Callable[..., object]) -> None:
    """Removes what a killed Docker has left of its containers: their processes and network interfaces.

    An interface on Docker's bridge keeps its address, so a new container with the same address can't be reached. runc
    freezes cgroups for moments, and a frozen process survives SIGKILL. Does nothing while a dockerd runs that doesn't
    answer: its containers may be in use. `run` runs a command.
    """
    if _is_running("dockerd"):
        return
    for pattern, thawed in (("freezer/docker/**/freezer.state", "THAWED"), ("docker/**/cgroup.freeze", "0")):
        for state in _CGROUPS.glob(pattern):
            with contextlib.suppress(OSError):
                state.write_text(thawed)
    deadline = time.monotonic() + _END_SECONDS
    while (left := _container_processes()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    for bridge in _INTERFACES.glob("veth*/master"):
        if re.fullmatch(r"docker0|br-[0-9a-f]{12}", bridge.readlink().name):
            with contextlib.suppress(FailedError):  # it vanishes with the last process of its container
                run("ip", "link", "delete", bridge.parent.name)


def _is_running(name: str) -> bool:
    """Returns whether a process with this name runs, other than a zombie."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip() == name and (folder / "exe").readlink():
                return True
    return False


def _container_processes() -> list[int]:
    """Returns the processes in cgroups of Docker's containers, without zombies.

    If this program itself runs in a container, its cgroup may be one of the outer Docker. The shell and every other
    process there are in the same cgroup, so only containers inside it count.
    """
    outer = _containers(_PROCESSES / "self")
    pids = []
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _containers(folder) - outer and (folder / "exe").readlink():
                pids.append(int(folder.name))
    return pids


def _containers(process: Path) -> set[str]:
    """Returns the ids of the containers that the process is in."""
    return set(re.findall(r"/docker/([0-9a-f]{64})", (process / "cgroup").read_text()))


def _capabilities() -> int:
    """Returns the capability bounding set of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapBnd")), ~0)


_recipe = Recipe(
    made_from="Debian's `docker.io`, or the installed Docker",
    make=start,
    seconds=3,
    megabytes=250,
    commands=("dockerd", "iptables", "ip", "apparmor_parser"),
    advice=f"read {settings.LOGS / 'dockerd'}",
)

PARTS = [
    Part(
        name="docker", what="runs and builds images", version="", registry=_recipe, packages=_recipe,
        present=docker.answers, stamped=False,
    )
]  # fmt: skip
