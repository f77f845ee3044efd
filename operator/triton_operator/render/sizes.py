"""Sizes that are computed from the spec."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from triton_operator.api import quantity
from triton_operator.api.fields import IntOrPercent
from triton_operator.api.types import ResourceRequirements, TritonModelSpec

_MIN_SHARED_MEMORY = Decimal(64 << 20)


def shared_memory(spec: TritonModelSpec) -> str:
    """Size of /dev/shm: as asked for, else half of the memory limit, else 1Gi.

    The repository's real need isn't known before the image is on a node; the check in the pod compares the
    two. The size only bounds: an empty /dev/shm takes no memory.
    """
    if spec.server.shared_memory is not None:
        return str(spec.server.shared_memory)
    limit = (spec.server.resources.limits or {}).get("memory")
    if limit is None:
        return "1Gi"
    return quantity.mebibytes(max(quantity.parse(limit) / 2, _MIN_SHARED_MEMORY))


def accelerators(resources: ResourceRequirements) -> int:
    """How many extended resources a server holds: GPUs, NPUs, FPGAs, by any vendor's name."""
    return sum(int(quantity.parse(n)) for name, n in (resources.limits or {}).items() if "/" in name)


def host_resources(resources: ResourceRequirements) -> dict[str, dict[str, object]]:
    """CPU and memory of the server, for init containers: a pod's need is the larger of the two, so it costs
    nothing, keeps the QoS class, and satisfies quotas that want limits."""

    def pick(values: Mapping[str, object] | None) -> dict[str, object]:
        return {k: v for k, v in (values or {}).items() if k in ("cpu", "memory")}

    picked = {"limits": pick(resources.limits), "requests": pick(resources.requests)}
    return {k: v for k, v in picked.items() if v}


def surge(spec: TritonModelSpec) -> dict[str, IntOrPercent]:
    """maxSurge and maxUnavailable of the rollout: a surge pod, unless it would wait for an accelerator that
    only the pod which it replaces could give up."""
    max_surge, max_unavailable = spec.rollout.max_surge, spec.rollout.max_unavailable
    if max_surge is None:
        # With room to go below, no surge is needed; without, only a surge pod can begin the rollout.
        below = max_unavailable is None or str(max_unavailable) not in ("0", "0%")
        max_surge = 0 if accelerators(spec.server.resources) and below else 1
    if max_unavailable is None:
        max_unavailable = 1 if str(max_surge) in ("0", "0%") else 0
    return {"maxSurge": max_surge, "maxUnavailable": max_unavailable}
