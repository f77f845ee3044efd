"""What the pod expects of the repository, and the options that say it: of the check in the pod, and of the plugin.

A new setting is a field of `Expected` with its entry in OPTIONS, and its value for a TritonModel in
triton_operator/render/expectations.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_repository_check import server_flags, versions
from triton_repository_check.needs import pool_bytes
from triton_repository_check.server_flags import ServerFlags
from triton_repository_check.versions import Version


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pod expects of the repository, and the resources that the pod has.

    - `entrypoint`: spec.entrypoint.
    - `load_models`: spec.server.loadModels; empty if Triton loads all models.
    - `gpus`: number of GPUs that Triton sees; None if unknown.
    - `cpus`: the server's CPU limit in cores; None if there is no limit or it is unknown.
    - `numpy_threads`: threads that numpy starts in each process of a Python model: by default one for each core of the
      node; None if unknown.
    - `storage`: the server's limit of ephemeral storage in bytes, if that has a copy of the repository; None otherwise.
    - `shared_memory`: size of /dev/shm in bytes; None if unknown.
    - `flags`: the server's flags; None if unknown.
    - `health_request`: spec.healthRequest.file.
    - `lacks`: backends that the server image certainly doesn't have.
    - `server`: the server's version; None if unknown.
    """

    entrypoint: str | None = None
    load_models: tuple[str, ...] = ()
    gpus: int | None = None
    cpus: float | None = None
    numpy_threads: int | None = None
    storage: int | None = None
    shared_memory: int | None = None
    flags: ServerFlags | None = None
    health_request: str | None = None
    lacks: tuple[str, ...] = ()
    server: Version | None = None

    @property
    def devices(self) -> int:
        """The number of GPUs for estimates: 1 if unknown, since a KIND_GPU group has at least one instance."""
        return 1 if self.gpus is None else self.gpus

    @property
    def pool_bytes(self) -> int:
        """The first bytes of /dev/shm that each instance of a Python model takes."""
        return pool_bytes(self.flags.region_bytes if self.flags else None, self.server)

    @property
    def config_name(self) -> str:
        """The name of the configurations that the server reads before config.pbtxt; "" without it."""
        return self.flags.config_name if self.flags else ""


@dataclass(frozen=True)
class Option:
    """How a field of `Expected` is written on a command line.

    - `name`: the field. `flag`: of the check in the pod. `help`: a sentence.
    - `plugin`: the flag of `kubectl triton validate`; "" without.
    - `read`: returns the value of a text, or of a list of texts if `many`. Raises ValueError with a sentence.
    - `write`: returns the text of a value.
    """

    name: str
    flag: str
    help: str
    plugin: str = ""
    metavar: str | None = None
    read: Callable[[Any], Any] = str
    write: Callable[[Any], str] = str
    many: bool = False

    def arguments(self, value: Any) -> list[str]:
        """Returns the arguments of the check in the pod; none for a value that says nothing."""
        return [] if value in (None, (), "") else [f"{self.flag}={self.write(value)}"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _cores(text: str) -> float:
    try:
        cores = float(text)
    except ValueError:
        cores = math.nan
    if not 0 < cores < math.inf:
        raise ValueError(f"{text!r} is not a number above 0")
    return cores


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a whole number of at least 0")
    return int(text)


OPTIONS = (
    Option(
        "entrypoint", "--entrypoint", "The model that clients call.", plugin="--entrypoint",
        read=lambda text: text or None,
    ),
    Option(
        "load_models", "--load-models", "Models that Triton loads. Default: all.", plugin="--load-models",
        metavar="A,B", read=_names, write=",".join,
    ),
    Option("gpus", "--gpus", "Number of the server's GPUs.", plugin="--gpus", metavar="NUMBER", read=_count),
    Option(
        "cpus", "--cpus", "The server's CPU limit in cores.", plugin="--cpus", metavar="CORES", read=_cores,
        write="{:g}".format,
    ),
    Option(
        "numpy_threads", "--numpy-threads",
        "Threads of numpy in each process of a Python model. Default: one for each core of the node.", read=_count,
    ),
    Option("storage", "--storage", "Limit in bytes of the disk that has a copy of the repository.", read=_count),
    Option(
        "shared_memory", "--shared-memory",
        "Size of /dev/shm: bytes, or with kubectl triton a quantity such as 512Mi.", plugin="--shm-size",
        metavar="QUANTITY", read=_count,
    ),
    Option(
        "flags", "--server-arg", "A flag as in spec.server.args, e.g. --model-config-name=edge.", plugin="--server-arg",
        metavar="FLAG", read=server_flags.parse, many=True,
    ),
    Option("health_request", "--health-request", "The file of spec.healthRequest.", metavar="FILE"),
    Option(
        "lacks", "--lacks", "Backends that the server image doesn't have.", metavar="A,B", read=_names, write=",".join
    ),
    Option(
        "server", "--server-version", "Server version, e.g. 2.51, or release, 24.10.", plugin="--server-version",
        metavar="VERSION", read=versions.parse, write=lambda version: f"{version[0]}.{version[1]}",
    ),
)  # fmt: skip
"""In the order in which the pod's arguments have them."""
NOTHING = Expected()
"""No expectations: the checks look only at the repository."""
