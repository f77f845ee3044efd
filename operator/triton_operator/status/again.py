"""When to look again at what no event tells of."""

from __future__ import annotations

from datetime import datetime

from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel

_PROPAGATING_SECONDS, _UNKNOWN_SECONDS = 2.0, 60.0
_PATIENCE_SECONDS = 180
"""After this a change isn't on its way any more: something is broken, and asking often doesn't mend it."""


def look_again(model: TritonModel, status: TritonModelStatus, now: str) -> float | None:
    """Seconds until what no event tells may have changed; None where nothing is open. `now` in RFC 3339."""
    reasons = {c.reason for c in status.conditions}
    if "Propagating" in reasons:
        since = [t.since for t in status.thresholds]
        since += [c.last_transition_time or now for c in status.conditions if c.reason == "Propagating"]
        waited = datetime.fromisoformat(now) - datetime.fromisoformat(max(since))
        return _PROPAGATING_SECONDS if waited.total_seconds() < _PATIENCE_SECONDS else _UNKNOWN_SECONDS
    # Over Triton's API a model can be unloaded without anything in the cluster telling of it.
    explicit = model.spec.server.model_control == "explicit"
    unknown = {"PrometheusUnreachable", "TokenCounterMissing"}
    return _UNKNOWN_SECONDS if explicit or reasons & unknown else None
