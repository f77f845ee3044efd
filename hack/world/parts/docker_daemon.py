"""A Docker daemon that answers."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from hack.world import docker, ledger, settings
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe

_START_SECONDS = 60
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
    Path("/var/run/docker.pid").unlink(missing_ok=True)
    options = []
    if not _capabilities() & _SYS_RESOURCE:
        # Some sandboxes and containers lack CAP_SYS_RESOURCE, which Docker gives to privileged containers.
        runtime = settings.HERE / "files" / "runc-without-sys-resource"
        kept = settings.BIN / runtime.name
        settings.BIN.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(runtime.read_bytes())
        kept.chmod(0o755)
        options = [f"--add-runtime=reduced={kept}", "--default-runtime=reduced"]
    with (settings.LOGS / "dockerd").open("ab") as log:
        subprocess.Popen(
            ["dockerd", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    job.say(f"started dockerd {' '.join(options)}")


def _capabilities() -> int:
    """Returns the capability bounding set of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapBnd")), ~0)


_recipe = Recipe(
    made_from="Debian's `docker.io`, or the installed Docker",
    make=start,
    seconds=3,
    megabytes=250,
    commands=("dockerd", "iptables", "apparmor_parser"),
    advice=f"read {settings.LOGS / 'dockerd'}",
)

PARTS = [
    Part(
        name="docker", what="runs and builds images", version="", registry=_recipe, packages=_recipe,
        present=docker.answers, stamped=False,
    )
]  # fmt: skip
