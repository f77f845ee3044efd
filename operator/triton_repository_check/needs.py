"""Estimates of the shared memory and of the threads that a repository needs.

The python backend passes each tensor between Triton and a model's process through a pool in /dev/shm. The pool of an
instance starts with `shm-default-byte-size` (in the python backend's README) and grows by the inputs and outputs of one
batch. If /dev/shm is too small, requests fail at run time with an unclear error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from triton_repository_check.model import Model, Repository
from triton_repository_check.schema import ModelInstanceGroup, type_name
from triton_repository_check.versions import Version

POOL_BYTES = 2**20
"""Initial size of an instance's pool, without the flag."""
OLD_POOL_BYTES = 64 * 2**20
"""The same up to release 23.08."""
OLD_POOLS: Version = (2, 37)
"""The server of release 23.08."""
HEADROOM_BYTES = 64 * 2**20
"""Space for other uses of /dev/shm, e.g. by libraries of the models: a container's default size."""
SPARE_QUARTERS = 5
"""Final size of the pools in quarters of the sum, because pools fragment.

Measured on server 2.51 under load with FP32 [3, 640, 640] in and out: 92 MiB for 2 instances with batch 4, whose sum
is 77 MiB, and 354 MiB for 4 instances with batch 8, whose sum is 304 MiB.
"""
ASSUMED_BYTES = 2**20
"""Assumed size of one TYPE_STRING element, and of a TYPE_UINT8 tensor with dims [-1]: usually an encoded image."""
ASSUMED_DIM = 640
"""Assumed size of each of the first two variable dimensions of a tensor, as in an image. Others count as 1."""

POOL_THREADS = 32
"""Threads that the server starts for each instance of a Python model, without the flag."""
OTHER_THREADS = 6
"""Further threads of an instance, besides those of numpy: three in the server, three in the process of the model.

Measured with up to six models, four instances and two versions on servers 2.51 and 2.71: each had 38 and one of numpy
for each core, or 7 and these with `thread-pool-size=1`. 16 and 96 cores were simulated, not real.
"""
SERVER_THREADS = 40
"""Threads of a server without models: 27 on one or two cores, 57 on 32 or more (2.51); eight more (2.71)."""
MAX_NUMPY_THREADS = 64
"""Maximum number of threads that numpy's OpenBLAS starts in a process, on a node with as many cores or more."""

_MAX_INT64 = 2**63 - 1
_ONE_BYTE = ("BOOL", "UINT8", "INT8")
_TWO_BYTES = ("UINT16", "INT16", "FP16", "BF16")
_FOUR_BYTES = ("UINT32", "INT32", "FP32")


def shared_memory(
    repository: Repository, gpus: int = 1, names: Collection[str] | None = None, pool: int = POOL_BYTES
) -> int:
    """Returns an estimate of the bytes of /dev/shm that the repository's python models need; 0 if it has none.

    Adds one batch of inputs and outputs and the initial pool size of each instance, then a quarter of the sum, and the
    headroom. The constants above are the assumed variable sizes. `gpus` is the number of GPUs that Triton sees: a
    KIND_GPU group has its count of instances on each of them. `names` are the models that are loaded; default: all.
    `pool` is the initial size of a pool.
    """
    need = sum(_processes(m, gpus) * (pool + _batch_bytes(m)) for m in _python_models(repository, names))
    return need * SPARE_QUARTERS // 4 + HEADROOM_BYTES if need else 0


def pools(repository: Repository, names: Collection[str] | None, pool: int) -> int:
    """Returns the bytes of /dev/shm without which the models don't load: the initial pools, on one GPU at most."""
    return sum(_processes(model, 0) * pool for model in _python_models(repository, names))


def pool_bytes(flag: int | None, server: Version | None) -> int:
    """Returns the initial size of a pool. `flag` and `server`: None if not known."""
    default = OLD_POOL_BYTES if server is not None and server <= OLD_POOLS else POOL_BYTES
    return default if flag is None else flag


def python_instances(repository: Repository, gpus: int, names: Collection[str] | None) -> int:
    """Returns the number of processes of Python models. `gpus` and `names` as for `shared_memory`."""
    return sum(_processes(model, gpus) for model in _python_models(repository, names))


def threads(processes: int, pool: int, numpy: int) -> int:
    """Returns an estimate of the threads of a server with this number of processes of Python models.

    `pool`: threads that the server starts for each of them. `numpy`: threads of numpy in each of them. Libraries that a
    model imports may start more.
    """
    return SERVER_THREADS + processes * (pool + OTHER_THREADS + numpy)


def instances(model: Model, gpus: int = 1) -> int:
    """Returns the number of instances of each served version; without instance_group one for each GPU."""
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
    """Returns the bytes of `tensor`, a ModelInput or a ModelOutput, without its batch dimension."""
    return _bytes(tensor.data_type, tuple(tensor.dims))


def _bytes(data_type: int, dims: tuple[int, ...]) -> int:
    fixed = product(d for d in dims if d >= 0)
    variable = sum(1 for d in dims if d < 0)
    kind = type_name(data_type).removeprefix("TYPE_")
    if kind == "UINT8" and dims == (-1,):
        return ASSUMED_BYTES
    return int(fixed * ASSUMED_DIM ** min(variable, 2) * element_bytes(kind))


def product(sizes: Iterable[int]) -> int:
    """Returns the product of `sizes`, at most 2^63-1, because Python can't print extremely large numbers."""
    out = 1
    for size in sizes:
        out = max(-_MAX_INT64, min(out * size, _MAX_INT64))
    return out


def element_bytes(kind: str) -> int:
    """Returns the bytes of one element of a type, e.g. `FP32`. For a string, it is ASSUMED_BYTES."""
    if kind == "STRING":
        return ASSUMED_BYTES
    if kind in _ONE_BYTE:
        return 1
    if kind in _TWO_BYTES:
        return 2
    return 4 if kind in _FOUR_BYTES else 8


def _python_models(repository: Repository, names: Collection[str] | None) -> list[Model]:
    models = [m for name, m in repository.models.items() if names is None or name in names]
    return [m for m in models if m.backend == "python"]


def _processes(model: Model, gpus: int) -> int:
    """Returns the number of instances of all served versions."""
    return instances(model, gpus) * max(len(model.served), 1)


def _batch_bytes(model: Model) -> int:
    """Returns the bytes of the inputs and outputs of one batch."""
    batch = tensors = 0
    if model.config is not None:
        batch = model.config.max_batch_size
        kinds = Counter(
            (t.data_type, tuple(t.dims)) for side in (model.config.input, model.config.output) for t in side
        )
        tensors = sum(count * _bytes(*kind) for kind, count in kinds.items())
    return max(batch, 1) * tensors
