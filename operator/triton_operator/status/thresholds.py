"""Accepted thresholds over time: since when each applies, and what changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_operator.api.status import ThresholdStatus
from triton_operator.api.thresholds import ThresholdKey, Thresholds, accepted, last_accepted, text


@dataclass(frozen=True)
class Change:
    """A threshold that was set, changed or removed. `old`, `new`: the values as text, "" for none."""

    threshold: ThresholdKey
    old: str
    new: str
    source: str

    def __str__(self) -> str:
        return f"{self.threshold}: {self.old or 'none'} → {self.new or 'none'} (annotation {self.source})"


def states(requested: Thresholds, before: Iterable[ThresholdStatus], now: str) -> list[ThresholdStatus]:
    """Returns the accepted thresholds, sorted by kind. An unchanged value keeps its `since`."""
    previous = {ThresholdKey(t.kind, t.version): t for t in before}
    values = accepted(requested, last_accepted({"thresholds": [t.model_dump() for t in previous.values()]}))
    out = []
    for threshold, value in sorted(values.items()):
        request, old, value_text = requested.requested.get(threshold), previous.get(threshold), text(value)
        if old is not None and old.value == value_text:
            source = request.source if request else old.source
            out.append(old.model_copy(update={"source": source}))
        elif request is not None:
            out.append(
                ThresholdStatus(
                    kind=threshold.kind, version=threshold.version, value=value_text, source=request.source, since=now
                )
            )
    return out


def changes(before: Iterable[ThresholdStatus], now: Iterable[ThresholdStatus]) -> list[Change]:
    """Returns the changes between two statuses. Each causes an Event and a log line."""
    old = {ThresholdKey(t.kind, t.version): t for t in before}
    new = {ThresholdKey(t.kind, t.version): t for t in now}
    return [
        Change(
            threshold,
            old[threshold].value if threshold in old else "",
            new[threshold].value if threshold in new else "",
            (new.get(threshold) or old[threshold]).source,
        )
        for threshold in sorted({*old, *new})
        if threshold not in old or threshold not in new or old[threshold].value != new[threshold].value
    ]
