"""When to look again at what no event tells of."""

from __future__ import annotations

from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel

_UNKNOWN_SECONDS = 60.0
_UNKNOWN = {"Propagating", "PrometheusUnreachable", "TokenCounterMissing"}
"""What Prometheus says of thresholds is told when it changes; this is for what it may say of all else."""


def look_again(model: TritonModel, status: TritonModelStatus) -> float | None:
    """Seconds until what no event tells may have changed; None where nothing is open."""
    # Over Triton's API a model can be unloaded without anything in the cluster telling of it.
    explicit = model.spec.server.model_control == "explicit"
    return _UNKNOWN_SECONDS if explicit or _UNKNOWN & {c.reason for c in status.conditions} else None
