"""The limits and flags of the server that the repository check uses."""

from __future__ import annotations

import re
from dataclasses import replace

from triton_operator.api import quantity
from triton_operator.api.types import TritonModel
from triton_repository_check import server_flags, versions
from triton_repository_check.expected import OPTIONS, Expected
from triton_repository_check.needs import MAX_NUMPY_THREADS

from . import load_models
from .facts import Delivery
from .sizes import ephemeral_storage, gpus, shared_memory


def expected(model: TritonModel) -> Expected:
    """Returns the input of `kubectl triton validate --spec`.

    It has the values that `arguments` passes to the check in the pod, and the size of /dev/shm, which that measures.
    """
    spec = model.spec
    cpu = (spec.server.resources.limits or {}).get("cpu")
    return Expected(
        entrypoint=spec.entrypoint,
        load_models=tuple(spec.server.load_models),
        shared_memory=int(quantity.parse(shared_memory(spec))),
        gpus=gpus(spec),
        # Kubernetes takes a limit of 0 for no limit.
        cpus=float(quantity.parse(cpu or 0)) or None,
        numpy_threads=_numpy_threads(model),
        flags=server_flags.parse(spec.server.args),
        storage=ephemeral_storage(spec) if spec.model_image.delivery == "Copy" else None,
        server=versions.of_image(spec.server.image),
        health_request=spec.health_request.file if spec.health_request else None,
        lacks=() if _adds_backends(model) else versions.lacks(spec.server.image),
    )


def _numpy_threads(model: TritonModel) -> int | None:
    """Returns the threads of numpy in each process of a Python model; None if the spec leaves it to the node."""
    values = {variable.get("name"): variable.get("value") for variable in model.spec.server.env}
    # OpenBLAS looks at them in this order.
    texts = [str(values[name]) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS") if name in values]
    numbers = [int(text) for text in texts if re.fullmatch("[1-9][0-9]{0,3}", text)]
    return min(numbers[0], MAX_NUMPY_THREADS) if numbers else None


def _adds_backends(model: TritonModel) -> bool:
    """Whether the spec may give the server other backends than those of its image."""
    flags = any(argument.startswith("--backend-dir") for argument in model.spec.server.args)
    return flags or "/backends" in str(model.spec.pod_template.spec)


def arguments(model: TritonModel, delivery: Delivery) -> list[str]:
    """Returns the arguments of `triton_repository_check.check`."""
    storage = ephemeral_storage(model.spec) if delivery == "Copy" else None
    values = replace(expected(model), storage=storage)
    others = {
        "load_models": load_models.check_flags(model),
        "shared_memory": [],
        "flags": [f"--server-arg={argument}" for argument in server_flags.relevant(model.spec.server.args)],
    }
    return [
        argument
        for option in OPTIONS
        for argument in others.get(option.name, option.arguments(getattr(values, option.name)))
    ]
