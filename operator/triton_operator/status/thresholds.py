"""Thresholds over time: which are in force, since when, and what changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_operator.api.status import ThresholdStatus
from triton_operator.api.thresholds import Slot, Thresholds, in_force, last_good, text


@dataclass(frozen=True)
class Change:
    """A threshold that was set, changed or removed. `old`, `new`: as shown, "" where there was or is none."""

    slot: Slot
    old: str
    new: str
    source: str

    def __str__(self) -> str:
        return f"{self.slot}: {self.old or 'none'} → {self.new or 'none'} (annotation {self.source})"


def states(found: Thresholds, before: Iterable[ThresholdStatus], now: str) -> list[ThresholdStatus]:
    """What is in force, the kinds in their order. A value that stays keeps its `since`."""
    known = {Slot(t.kind, t.version): t for t in before}
    values = in_force(found, last_good({"thresholds": [t.model_dump() for t in known.values()]}))
    out = []
    for slot, value in sorted(values.items()):
        asked, old, shown = found.asked.get(slot), known.get(slot), text(value)
        if old is not None and old.value == shown:
            source = asked.source if asked else old.source
            out.append(old.model_copy(update={"source": source}))
        elif asked is not None:
            out.append(
                ThresholdStatus(kind=slot.kind, version=slot.version, value=shown, source=asked.source, since=now)
            )
    return out


def changes(before: Iterable[ThresholdStatus], now: Iterable[ThresholdStatus]) -> list[Change]:
    """What is worth an Event and a line in the log."""
    old = {Slot(t.kind, t.version): t for t in before}
    new = {Slot(t.kind, t.version): t for t in now}
    return [
        Change(
            slot,
            old[slot].value if slot in old else "",
            new[slot].value if slot in new else "",
            (new.get(slot) or old[slot]).source,
        )
        for slot in sorted({*old, *new})
        if slot not in old or slot not in new or old[slot].value != new[slot].value
    ]
