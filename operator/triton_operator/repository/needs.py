"""What a repository needs of its pod: shared memory.

The python backend passes every tensor between Triton and a model's process through a pool in /dev/shm. A pool starts
at 1 MiB an instance (`shm-default-byte-size` in the python backend's README) and grows by what is in flight: the
inputs and outputs of one batch. Where /dev/shm is too small, requests fail at run time with an unclear error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from triton_operator.repository.model import Model, Repository
from triton_operator.repository.schema import ModelInstanceGroup, type_name

POOL_BYTES = 2**20
"""What the pool of an instance starts at."""
HEADROOM_BYTES = 64 * 2**20
"""For all else in /dev/shm, e.g. what libraries of the models put there: as much as a container has by default."""
SPARE_QUARTERS = 5
"""Quarters of the sum that pools grow to, as they fragment. Measured on server 2.51 with FP32 [3, 640, 640] in and
out under load: 92 MiB where 2 instances of batch 4 sum up to 77, and 354 where 4 of batch 8 sum up to 304."""
ASSUMED_BYTES = 2**20
"""One element of TYPE_STRING, and one TYPE_UINT8 tensor of dims [-1]: as a rule an encoded image."""
ASSUMED_DIM = 640
"""Each of the first two variable dimensions of a tensor, as of an image; further ones count 1."""

_MOST = 2**63 - 1
_ONE_BYTE = ("BOOL", "UINT8", "INT8")
_TWO_BYTES = ("UINT16", "INT16", "FP16", "BF16")
_FOUR_BYTES = ("UINT32", "INT32", "FP32")


def shared_memory(repository: Repository, gpus: int = 1, names: Collection[str] | None = None) -> int:
    """Bytes of /dev/shm that the repository's python models need; 0 where it has none.

    The sum over their instances of one batch of inputs and outputs and of the pool's start, a quarter more, and the
    headroom. It is
    an estimate: variable sizes count as the constants above say. `gpus` is how many devices Triton sees: a group of
    KIND_GPU has its count on each. `names` narrows it to the models that are loaded.
    """
    models = [m for name, m in repository.models.items() if names is None or name in names]
    need = sum(_model_bytes(model, gpus) for model in models if model.backend == "python")
    return need * SPARE_QUARTERS // 4 + HEADROOM_BYTES if need else 0


def instances(model: Model, gpus: int = 1) -> int:
    """How many instances of each served version Triton starts; without instance_group it is one a device."""
    devices = max(gpus, 1)
    groups = model.config.instance_group if model.config is not None else ()
    total = 0
    for group in groups:
        on = 1
        if group.kind in (ModelInstanceGroup.KIND_GPU, ModelInstanceGroup.KIND_AUTO):
            on = len(group.gpus) or devices
        total += max(group.count, 1) * on
    return total or devices


def tensor_bytes(tensor: Any) -> int:
    """Bytes of one tensor of a request, without its batch dimension. `tensor` is a ModelInput or a ModelOutput."""
    fixed = product(d for d in tensor.dims if d >= 0)
    variable = sum(1 for d in tensor.dims if d < 0)
    kind = type_name(tensor.data_type).removeprefix("TYPE_")
    if kind == "UINT8" and list(tensor.dims) == [-1]:
        return ASSUMED_BYTES
    return int(fixed * ASSUMED_DIM ** min(variable, 2) * element_bytes(kind))


def product(sizes: Iterable[int]) -> int:
    """What `sizes` multiply to, at most 2^63-1: a few hundred large dims make a number that can't even be shown."""
    out = 1
    for size in sizes:
        out = max(-_MOST, min(out * size, _MOST))
    return out


def element_bytes(kind: str) -> int:
    """Bytes of one element of a type, e.g. `FP32`; of a string what is assumed."""
    if kind == "STRING":
        return ASSUMED_BYTES
    if kind in _ONE_BYTE:
        return 1
    if kind in _TWO_BYTES:
        return 2
    return 4 if kind in _FOUR_BYTES else 8


def _model_bytes(model: Model, gpus: int) -> int:
    batch = tensors = 0
    if model.config is not None:
        batch = model.config.max_batch_size
        tensors = sum(tensor_bytes(t) for t in (*model.config.input, *model.config.output))
    processes = instances(model, gpus) * max(len(model.served), 1)
    return processes * (POOL_BYTES + max(batch, 1) * tensors)
