"""Checks of the models' needs against the pod's resources: memory, cores, response cache."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, isfinite

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.graph import loaded
from triton_repository_check.model import Model, Repository
from triton_repository_check.needs import POOL_THREADS, instances, pools, python_instances, shared_memory
from triton_repository_check.needs import threads as estimate
from triton_repository_check.rules.base import Checks, each_model_expected, error, note, on_cpu, warning

CODES = {
    "TR504": "too little shared memory",
    "TR505": "more threads than cores",
    "TR506": "response_cache without --cache-config",
    "TR507": "the model can't have a response_cache",
    "TR512": "rate_limiter without --rate-limit=execution_count",
    "TR513": "rate_limiter: too few of a resource",
    "TR514": "the repository is larger than the limit of ephemeral storage",
    "TR516": "more threads of Python models than a pod may have in some clusters",
    "TR518": "rate_limiter: a resource is both global and of each device",
}

THREADS = {
    "onnxruntime": ("intra_op_thread_count",),
    "pytorch": ("INTRA_OP_THREAD_COUNT",),
    "tensorflow": ("TF_NUM_INTRA_THREADS",),
    "openvino": ("INFERENCE_NUM_THREADS", "CPU_THREADS_NUM"),
}
"""Parameters that set the number of threads, by backend.

Without the parameter, these backends ignore the CPU limit: each instance starts one thread for each core of the node.
"""


FEW_THREADS, MANY_THREADS = 1024, 4096
"""Limits of a pod's processes, which threads count against: a usual one of the kubelet, and OpenShift's default.

No check can read it: the kubelet sets it for the pod's cgroup, and a container sees only its own.
"""


def memory(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR504: /dev/shm is too small for the python models. It is an error if they can't load."""
    names, pool = loaded(repository, expected.load_models), expected.pool_bytes
    need = shared_memory(repository, expected.devices, names, pool)
    have = expected.shared_memory
    if have is None or need <= have:
        return
    first = pools(repository, names, pool)
    level = error if first > have else warning
    start = f", {_mib(first)} MiB of them to load ({_mib(pool)} MiB for each instance)" if first > have else ""
    yield level(
        ".",
        "TR504",
        f"the models need about {_mib(need)} MiB of shared memory{start}, the pod has {_mib(have)} MiB",
        f"set spec.server.sharedMemory to {_mib(need)}Mi, or lower instances and max_batch_size",
    )


def storage(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR514: Kubernetes evicts a pod whose copy of the repository is larger than its limit, again and again."""
    size, limit = repository.size, expected.storage
    if size is not None and limit is not None and size > limit:
        yield error(
            ".",
            "TR514",
            f"the repository has {_mib(size)} MiB, and the server's limit of ephemeral storage is {_mib(limit)} MiB",
            f"raise spec.server.resources.limits.ephemeral-storage above {_mib(size)}Mi, or set modelImage.delivery to "
            "ImageVolume, which copies nothing",
        )


def rate_limiter(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR512, TR513: the server ignores rate_limiter, or has too few of a resource."""
    groups = enumerate(model.config.instance_group if model.config else ())
    limited = {number: group.rate_limiter for number, group in groups if group.HasField("rate_limiter")}
    if expected.flags is None or not limited:
        return
    at = model.where.find("instance_group", min(limited), "rate_limiter")
    if not expected.flags.rate_limiter:
        yield warning(
            model.config_path,
            "TR512",
            "the server ignores rate_limiter",
            "add --rate-limit=execution_count to spec.server.args, or remove rate_limiter",
            at,
        )
        return
    have = expected.flags.resources
    needs: dict[str, int] = {}
    for resource in (resource for limiter in limited.values() for resource in limiter.resources):
        needs[resource.name] = max(resource.count, needs.get(resource.name, 0))
    for name, need in needs.items() if have else ():
        if need > have.get(name, 0):
            yield error(
                model.config_path,
                "TR513",
                f"an instance needs {need} of the resource {name!r}, the server has {have.get(name, 0)}",
                f"set --rate-limit-resource={name}:{need} in spec.server.args, or lower the count",
                at,
            )


def resource_kinds(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR518: the rate limiter refuses a resource that is global in one place and not in another, of any model."""
    if expected.flags is None or not expected.flags.rate_limiter:
        return
    first: dict[str, tuple[bool, str]] = {}
    for name in sorted(loaded(repository, expected.load_models) & repository.models.keys()):
        model = repository.models[name]
        for group, instance in enumerate(model.config.instance_group if model.config and not model.is_ensemble else ()):
            for index, resource in enumerate(instance.rate_limiter.resources):
                kind = getattr(resource, "global")
                other, where = first.setdefault(resource.name, (kind, model.config_path))
                if other != kind:
                    yield error(
                        model.config_path,
                        "TR518",
                        f"the resource {resource.name!r} is {'global' if kind else 'not global'}, but it is "
                        f"{'global' if other else 'not global'} in another place of {where}",
                        "set the same global in all of them, or use two names",
                        model.where.find("instance_group", group, "rate_limiter", 0, "resources", index),
                    )


def threads(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR505: the model starts more threads than the server has cores, which slows down each request."""
    names = THREADS.get(model.backend)
    if expected.cpus is None or model.config is None or not names or not on_cpu(model, expected):
        return
    if not isfinite(expected.cpus):
        return
    cores, count = max(ceil(expected.cpus), 1), instances(model, 0)
    key = next((n for n in names if n in model.config.parameters), None)
    if key is None:
        level = warning if count > 1 else note
        yield level(
            model.config_path,
            "TR505",
            f"{_plural(count, 'instance')} with one thread for each core of the node, "
            f"but the server's CPU limit is {_cores(expected.cpus)}",
            f'set parameters {{ key: "{names[0]}" value: {{ string_value: "{max(cores // count, 1)}" }} }}',
            model.where.find("instance_group"),
        )
        return
    text = model.config.parameters[key].string_value
    each = int(text[:9]) if text.isdecimal() else 0  # longer numbers are above any limit
    if each * count > cores:
        yield warning(
            model.config_path,
            "TR505",
            f"{_plural(count, 'instance')} × {_plural(each, 'thread')}, "
            f"but the server's CPU limit is {_cores(expected.cpus)}",
            f"lower {key} or the instance count until their product is at most {cores}",
            model.where.find("parameters", key),
        )


def processes(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR516: Python models may have more threads than the node allows a pod, which ends the server."""
    count = python_instances(repository, expected.devices, loaded(repository, expected.load_models))
    flag = expected.flags.pool_threads if expected.flags else None
    pool, numpy = POOL_THREADS if flag is None else flag, expected.numpy_threads or 1
    need, left = estimate(count, pool, numpy), estimate(count, 1, numpy)
    if need <= FEW_THREADS:
        return
    level = warning if need > MANY_THREADS else note
    more = "" if expected.numpy_threads else f", and {count} more for each further core of the node"
    settings = ["--backend-config=python,thread-pool-size=1 to spec.server.args"] if pool > 1 else []
    if expected.numpy_threads != 1 and left > FEW_THREADS:
        settings.append("OPENBLAS_NUM_THREADS=1 to spec.server.env")
        left = estimate(count, 1, 1)
    yield level(
        ".",
        "TR516",
        f"{_plural(count, 'instance')} of Python models have about {need} threads{more}: where the kubelet's "
        f"podPidsLimit is lower ({FEW_THREADS} in some clusters, {MANY_THREADS} on OpenShift), the server ends with "
        "exit code 139",
        f"add {' and '.join(settings)}, which leaves about {left}"
        if settings
        else "load fewer models, lower their instances, or ask an administrator for a higher podPidsLimit",
    )


def cache(repository: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR506, TR507: the server has no response cache, or the model can't use one."""
    config = model.config
    if config is None or not config.response_cache.enable:
        return
    at = model.where.find("response_cache")
    if expected.flags is not None and not expected.flags.response_cache:
        yield warning(
            model.config_path,
            "TR506",
            "response_cache is enabled, but the server has no cache",
            "add --cache-config=local,size=104857600 (bytes) to spec.server.args, or remove response_cache",
            at,
        )
    why = next(
        (
            reason
            for reason, holds in (
                ("sequence_batching", config.HasField("sequence_batching")),
                ("decoupled: true", config.model_transaction_policy.decoupled),
            )
            if holds
        ),
        None,
    )
    if why:
        yield error(model.config_path, "TR507", f"response_cache can't be used with {why}", "remove response_cache", at)
    parts = [step.model_name for step in model.steps if step.model_name in repository.models]
    moving = [p for p in parts if (c := repository.models[p].config) and c.model_transaction_policy.decoupled]
    if moving:
        yield error(
            model.config_path,
            "TR507",
            f"response_cache can't be used in an ensemble with the decoupled model {moving[0]!r}",
            "remove response_cache",
            at,
        )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _cores(cpus: float) -> str:
    return _plural(int(cpus), "core") if cpus == int(cpus) else f"{cpus:g} cores"


def _mib(size: int) -> int:
    return -(-size // 2**20)


CHECKS: Checks = (
    ("shared memory", memory),
    ("threads", each_model_expected(threads)),
    ("processes", processes),
    ("response cache", each_model_expected(cache)),
    ("rate limiter", each_model_expected(rate_limiter)),
    ("resources of the rate limiter", resource_kinds),
    ("size", storage),
)
