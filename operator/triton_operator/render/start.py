"""How the server's container starts tritonserver, and what watches it there: start.sh.

docs/decisions/0037-stack-of-the-server.md, docs/decisions/0038-dead-backend-processes.md
"""

from __future__ import annotations

from importlib import resources
from typing import Literal

from .delivery import BUSYBOX

STACK_KIB = 1 << 20
"""Stack of each thread. It is address space; only what a thread has used takes memory. Some kernels give a process no
more than 512 GiB of addresses, so it can't be much larger."""
DIED = "a backend process died:"
"""The beginning of the termination message of a server that ended because of it. The paths of model.py follow, with
", " between them, or words for one that isn't known. A second line says how full /dev/shm is, if it nearly is."""
READY = "/v2/health/ready"
"""Whether all models are ready."""


def command(
    repair: Literal["Restart", "Report"] = "Restart", ready: str = READY, health: str = "", *, processes: bool = False
) -> list[str]:
    """Returns the command of the container. Its arguments are the flags of tritonserver.

    The static busybox runs in every image, also in one without a shell. `repair`: spec.repair. `ready`: the path of
    Triton's readiness that the readiness probe requests. `health`: the path of the model to which it sends a request.
    The paths have no character that a shell interprets. `processes`: whether it writes what the processes use
    (processes.sh).
    """
    script = _SCRIPT
    for default, value in (
        ("repair=Restart", f"repair={repair}"),
        (f"ready={READY}", f"ready={ready}"),
        ("health=", f"health={health}"),
    ):
        script = script.replace(f"  {default}\n", f"  {value}\n")
    if processes:
        script = script.replace(_WATCH, f"{_PROCESSES}\nshow_processes &\n{_WATCH}")
    return [BUSYBOX, "sh", "-c", script, "tritonserver"]


def without_comments(script: str) -> str:
    """Returns a script without its comments, which would be in each pod."""
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _read(name: str) -> str:
    return without_comments(resources.files(__package__ or "").joinpath(name).read_text())


_SCRIPT = _read("start.sh")
_PROCESSES = _read("processes.sh")
_WATCH = 'watch "$@" &\n'
