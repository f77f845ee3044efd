"""Sizes that are computed from the spec."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from triton_operator.api import quantity
from triton_operator.api.fields import IntOrPercent
from triton_operator.api.names import CONTAINER_SERVER
from triton_operator.api.types import ResourceRequirements, TritonModelSpec

_GPU = re.compile(r"[^/]+/(gpu|gpu\.shared|mig-.+)")
"""Names of resources of which each is a GPU, or a part of one that Triton sees as one."""
_CUDA = re.compile(r"nvidia\.com/(gpu|gpu\.shared|mig-.+)")
"""Names of those that CUDA sees."""
_OTHER_ACCELERATOR = re.compile(
    r"(aws\.amazon\.com|cambricon\.com|gpu\.intel\.com|habana\.ai|huawei\.com|npu\.intel\.com)/.+|google\.com/tpu"
)
"""Names of devices that Triton's KIND_GPU can't use."""
_NETWORK = re.compile(
    r"(rdma|mellanox\.com|networking\.gke\.io(\.networks)?)/.+|vpc\.amazonaws\.com/(efa|pod-eni)|nvidia\.com/hostdev.*"
    r"|[^/]+/.*sriov.*"
)
"""Names of network cards. A node has many, or shares them."""
_MIN_SHARED_MEMORY = Decimal(64 << 20)


def shared_memory(spec: TritonModelSpec) -> str:
    """Returns the size of /dev/shm: spec.server.sharedMemory, or half of the memory limit, or 1Gi.

    The repository's requirement isn't known until the image is on a node; the check in the pod compares the two. It is
    only an upper bound: an empty /dev/shm takes no memory.
    """
    if spec.server.shared_memory is not None:
        return str(spec.server.shared_memory)
    limit = (spec.server.resources.limits or {}).get("memory")
    if limit is None:
        return "1Gi"
    return quantity.mebibytes(max(quantity.parse(limit) / 2, _MIN_SHARED_MEMORY))


def gpus(spec: TritonModelSpec) -> int | None:
    """Returns the number of GPUs that Triton sees; None if it isn't known.

    It isn't with a claim (DRA), and with a resource that says how much of a GPU a server gets and not how many, such as
    aliyun.com/gpu-mem, or whose name says nothing. Limits in spec.podTemplate override those of spec.server.resources.
    """
    resources = _devices(spec)
    number = sum(amount for name, amount in resources.items() if _GPU.fullmatch(name))
    others = [name for name in resources if not _OTHER_ACCELERATOR.fullmatch(name) and not _NETWORK.fullmatch(name)]
    return None if not number and (others or spec.pod_template.spec.get("resourceClaims")) else number


def with_gpus(limits: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns the limits of a container with this number of GPUs: of the resource that they have, or nvidia.com/gpu."""
    names = [name for name in limits if _GPU.fullmatch(name)]
    others = {name: amount for name, amount in limits.items() if name not in names}
    return {**others, (names[0] if len(names) == 1 else "nvidia.com/gpu"): number} if number else others


def cuda_devices(limits: Mapping[str, Any]) -> str:
    """Returns NVIDIA's GPUs in the limits of a container as text, such as 1 nvidia.com/gpu; "" if there are none."""
    devices = {name: _number(amount) for name, amount in limits.items() if _CUDA.fullmatch(name)}
    return ", ".join(f"{amount} {name}" for name, amount in sorted(devices.items()) if amount)


def _holds_devices(spec: TritonModelSpec) -> bool:
    """Whether a server has devices, such as GPUs of any vendor, that it must release before another one gets them."""
    held = any(not _NETWORK.fullmatch(name) for name in _devices(spec))
    return held or bool(spec.pod_template.spec.get("resourceClaims"))


def _devices(spec: TritonModelSpec) -> dict[str, int]:
    """Returns the extended resources of a server, and how many it has of each."""
    limits = {**(spec.server.resources.limits or {}), **_limits_in(spec.pod_template.spec)}
    amounts = {name: _number(amount) for name, amount in limits.items() if "/" in name}
    return {name: amount for name, amount in amounts.items() if amount}


def ephemeral_storage(spec: TritonModelSpec) -> int | None:
    """Returns the bytes of disk that a server may use, including the copy of the repository; None without a limit.

    Also None if spec.podTemplate adds containers: Kubernetes adds up their limits.
    """
    containers = spec.pod_template.spec.get("containers")
    others = isinstance(containers, list) and any(
        isinstance(item, dict) and item.get("name") != CONTAINER_SERVER for item in containers
    )
    limits = {**(spec.server.resources.limits or {}), **_limits_in(spec.pod_template.spec)}
    limit = limits.get("ephemeral-storage")
    return None if others else _number(limit) or None


def _limits_in(pod_spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the limits of the server's container in a pod's spec, which may have any values."""
    containers = pod_spec.get("containers")
    for item in containers if isinstance(containers, list) else ():
        resources = item.get("resources") if isinstance(item, dict) and item.get("name") == CONTAINER_SERVER else None
        limits = resources.get("limits") if isinstance(resources, dict) else None
        if isinstance(limits, dict):
            return limits
    return {}


def _number(amount: Any) -> int:
    try:
        return int(quantity.parse(amount))
    except (ValueError, ArithmeticError):
        return 0  # None removes the limit, and the API server refuses everything else


def host_resources(resources: ResourceRequirements) -> dict[str, dict[str, object]]:
    """Returns CPU and memory of the server, for init containers.

    A pod requests the maximum of both, so this costs nothing. It keeps the QoS class and satisfies quotas that require
    limits.
    """

    def pick(values: Mapping[str, object] | None) -> dict[str, object]:
        return {k: v for k, v in (values or {}).items() if k in ("cpu", "memory")}

    fields = {"limits": pick(resources.limits), "requests": pick(resources.requests)}
    return {k: v for k, v in fields.items() if v}


def surge(spec: TritonModelSpec) -> dict[str, IntOrPercent]:
    """Returns maxSurge and maxUnavailable of the rollout.

    The default is one surge pod, or none if it would wait for the accelerator of the pod that it replaces.
    """
    max_surge, max_unavailable = spec.rollout.max_surge, spec.rollout.max_unavailable
    if max_surge is None:
        # If no pod may be unavailable, only a surge pod can start the rollout.
        below = max_unavailable is None or str(max_unavailable) not in ("0", "0%")
        max_surge = 0 if _holds_devices(spec) and below else 1
    if max_unavailable is None:
        max_unavailable = 1 if str(max_surge) in ("0", "0%") else 0
    return {"maxSurge": max_surge, "maxUnavailable": max_unavailable}


def rollout_numbers(spec: TritonModelSpec, servers: int) -> tuple[int, int]:
    """Returns how many of these servers may be above the desired number in a rollout, and how many may be missing.

    As Kubernetes rounds the percentages: one up, the other down, and one may be missing if both are 0.
    """
    limits = surge(spec)
    above = math.ceil(_share(limits["maxSurge"], servers))
    missing = math.floor(_share(limits["maxUnavailable"], servers))
    return above, missing if above or missing else 1


def _share(value: IntOrPercent, servers: int) -> Fraction:
    text = str(value)
    return Fraction(int(text[:-1]) * servers, 100) if text.endswith("%") else Fraction(int(text))
