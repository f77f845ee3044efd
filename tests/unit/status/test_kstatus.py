"""Progressing in the words of kstatus."""

from __future__ import annotations

import pytest

from triton_operator.api.status import Truth
from triton_operator.status.conditions import condition, transitions
from triton_operator.status.kstatus import kstatus


@pytest.mark.parametrize(
    ("status", "reason", "reconciling", "stalled"),
    [
        ("True", "Creating", "True", "False"),
        ("True", "RollingOut", "True", "False"),
        ("True", "ChangingModels", "True", "False"),
        ("False", "Complete", "False", "False"),
        # A node can become free, or be added.
        ("False", "Unschedulable", "True", "False"),
        ("False", "ImagePullFailed", "False", "True"),
        ("False", "SpecInvalid", "False", "True"),
        ("False", "FieldContested", "False", "True"),
    ],
)
def test_translates_progressing(status: Truth, reason: str, reconciling: str, stalled: str) -> None:
    conditions = kstatus(condition("Progressing", status, reason, "words"))
    assert [(c.type, c.status, c.reason) for c in conditions] == [
        ("Reconciling", reconciling, reason), ("Stalled", stalled, reason),
    ]  # fmt: skip
    assert [c.message for c in conditions] == ["words" if c.status == "True" else "" for c in conditions]


def test_says_nothing_in_events_that_progressing_does_not_say() -> None:
    progressing = condition("Progressing", "False", "ImagePullFailed", "words")
    changes = transitions([], [progressing, *kstatus(progressing)])
    assert [(t.kind, t.reason) for t in changes] == [("Warning", "ImagePullFailed")]
