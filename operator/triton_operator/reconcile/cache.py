"""What the reconciler caches for one TritonModel. It only saves work: a new leader starts without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from triton_operator.plan import Applied, Compared, Identity


@dataclass
class ReconcileCache:
    """Not thread-safe: only one thread at a time reconciles a TritonModel.

    - `applied`, `unchanged`: see `plan`.
    - `due`: the time from which a status update without urgency may be written. None before the first one.
    - `pending`: since when a server's answer has been outstanding.
    - `cleaned_up`: uid of the Deployment for which leftover pods were already deleted.
    """

    applied: dict[Identity, Applied] = field(default_factory=dict)
    unchanged: dict[Identity, Compared] = field(default_factory=dict)
    due: datetime | None = None
    pending: datetime | None = None
    cleaned_up: str = ""
