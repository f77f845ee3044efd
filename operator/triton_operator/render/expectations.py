"""The limits and flags of the server that the repository check uses."""

from __future__ import annotations

from triton_operator.api import quantity
from triton_operator.api.types import TritonModel
from triton_operator.repository import versions
from triton_operator.repository.rules.base import Expected

from . import load_models
from .sizes import devices, shared_memory

_CACHE_FLAGS = ("--cache-config", "--response-cache-byte-size")


def expected(model: TritonModel) -> Expected:
    """Returns the input of `kubectl triton validate --spec`.

    It has the values that `arguments` passes to the check in the pod, and the size of /dev/shm, which the check in the
    pod measures.
    """
    spec = model.spec
    cpu = (spec.server.resources.limits or {}).get("cpu")
    return Expected(
        entrypoint=spec.entrypoint,
        load_models=tuple(spec.server.load_models),
        shared_memory=int(quantity.parse(shared_memory(spec))),
        gpus=devices(spec),
        cpus=None if cpu is None else float(quantity.parse(cpu)),
        response_cache=any(argument.startswith(_CACHE_FLAGS) for argument in spec.server.args),
        server=versions.of_image(spec.server.image),
    )


def arguments(model: TritonModel) -> list[str]:
    """Returns the arguments of `triton_operator.repository.check`."""
    wanted = expected(model)
    return [
        *([f"--entrypoint={wanted.entrypoint}"] if wanted.entrypoint else []),
        *load_models.check_flags(wanted.load_models),
        *([f"--gpus={wanted.gpus}"] if wanted.gpus is not None else []),
        *([f"--cpus={wanted.cpus:g}"] if wanted.cpus is not None else []),
        "--response-cache" if wanted.response_cache else "--no-response-cache",
        *([f"--server-version={wanted.server[0]}.{wanted.server[1]}"] if wanted.server else []),
    ]
