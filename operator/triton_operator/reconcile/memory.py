"""What is remembered of one TritonModel from one pass to the next. It only saves work: a new leader has none of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from triton_operator.plan import Applied, Compared, Identity


@dataclass
class Memory:
    """`applied`, `alike`: see `plan`. `due`: from when on a status may be written that nobody waits for; None before
    the first. `pending`: since when a server's answer has been outstanding. `cleared`: the uid of the Deployment whose
    predecessors' servers were looked for. Only one thread at a time works on a TritonModel."""

    applied: dict[Identity, Applied] = field(default_factory=dict)
    alike: dict[Identity, Compared] = field(default_factory=dict)
    due: datetime | None = None
    pending: datetime | None = None
    cleared: str = ""
