"""The limits and flags of the server that the repository check uses."""

from __future__ import annotations

import re

from triton_operator.api import quantity
from triton_operator.api.types import TritonModel
from triton_repository_check import versions
from triton_repository_check.rules.base import Expected

from . import load_models
from .sizes import gpus, shared_memory

_NO_COMPLETION = re.compile(
    r"^--(disable-auto-complete-config|strict-model-config[=\n](true|on|1))$", re.MULTILINE | re.IGNORECASE
)
"""Flags with which Triton needs a complete config.pbtxt."""
_CONFIG_NAME = re.compile(r"^--model-config-name[=\n]([\w.-]+)$", re.MULTILINE)
_CACHE_FLAGS = ("--cache-config", "--response-cache-byte-size")


def expected(model: TritonModel) -> Expected:
    """Returns the input of `kubectl triton validate --spec`.

    It has the values that `arguments` passes to the check in the pod, and the size of /dev/shm, which the check in the
    pod measures.
    """
    spec = model.spec
    named = _CONFIG_NAME.search("\n".join(spec.server.args))
    cpu = (spec.server.resources.limits or {}).get("cpu")
    return Expected(
        entrypoint=spec.entrypoint,
        load_models=tuple(spec.server.load_models),
        shared_memory=int(quantity.parse(shared_memory(spec))),
        gpus=gpus(spec),
        cpus=None if cpu is None else float(quantity.parse(cpu)),
        response_cache=any(argument.startswith(_CACHE_FLAGS) for argument in spec.server.args),
        server=versions.of_image(spec.server.image),
        completion=not _NO_COMPLETION.search("\n".join(spec.server.args)),
        health_request=spec.health_request.file if spec.health_request else None,
        config_name=named[1] if named else "",
        lacks=() if _adds_backends(model) else versions.lacks(spec.server.image),
    )


def _adds_backends(model: TritonModel) -> bool:
    """Whether the spec may give the server other backends than those of its image."""
    flags = any(argument.startswith("--backend-dir") for argument in model.spec.server.args)
    return flags or "/backends" in str(model.spec.pod_template.spec)


def arguments(model: TritonModel) -> list[str]:
    """Returns the arguments of `triton_repository_check.check`."""
    values = expected(model)
    return [
        *([f"--entrypoint={values.entrypoint}"] if values.entrypoint else []),
        *load_models.check_flags(model),
        *([f"--gpus={values.gpus}"] if values.gpus is not None else []),
        *([f"--cpus={values.cpus:g}"] if values.cpus is not None else []),
        "--response-cache" if values.response_cache else "--no-response-cache",
        *(["--no-completion"] if not values.completion else []),
        *([f"--health-request={values.health_request}"] if values.health_request else []),
        *([f"--config-name={values.config_name}"] if values.config_name else []),
        *([f"--lacks={','.join(values.lacks)}"] if values.lacks else []),
        *([f"--server-version={values.server[0]}.{values.server[1]}"] if values.server else []),
    ]
