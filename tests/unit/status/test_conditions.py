"""Conditions have a valid reason and a message that the API server accepts."""

from __future__ import annotations

import json

import pytest

from triton_operator.api.status import PROGRESSING, READY, TritonModelStatus
from triton_operator.pods import Problem
from triton_operator.status.assess import unread
from triton_operator.status.conditions import condition

INVALID = Problem("SpecInvalid", "the spec can't be read: spec.entrypoint: no")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Evicted", "Evicted"), ("A,b:c_d", "A,b:c_d"), ("X", "X"), ("Node is gone", "Nodeisgone"), ("", "Unknown"),
        ("--", "Unknown"), ("1st try", "sttry"), ("a" * 200, "a" * 128), ("Ärger", "rger"), ("Late,", "Late"),
        ("End\n", "End"),
    ],
)  # fmt: skip
def test_replaces_a_reason_that_kubernetes_would_reject(text: str, reason: str) -> None:
    assert condition(READY, "False", text, "").reason == reason


def test_limits_a_message_and_replaces_invalid_characters() -> None:
    limited = condition(READY, "False", "Bad", json.loads('"\\ud800"') + "a" * 100_000)
    assert limited.message.encode()[:2] == b"?a"
    assert len(limited.message) == 4096


def test_reports_a_spec_that_cannot_be_read() -> None:
    status = unread(TritonModelStatus(), INVALID, "2026-01-01T00:00:00Z", 3)
    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        (READY, "False", "SpecInvalid"), (PROGRESSING, "False", "SpecInvalid"),
    ]  # fmt: skip
    assert all("spec.entrypoint: no" in c.message for c in status.conditions)
    assert status.observed_generation == 3
    assert unread(status, INVALID, "2027-01-01T00:00:00Z", 3) == status


def test_stays_ready_while_the_spec_cannot_be_read() -> None:
    before = TritonModelStatus(
        conditions=[condition(READY, "True", "EntrypointAnswers", "a answers")], ready_replicas=2
    )
    status = unread(before, INVALID, "2026-01-01T00:00:00Z", 3)
    assert [(c.type, c.status) for c in status.conditions] == [(READY, "True"), (PROGRESSING, "False")]
    assert status.ready_replicas == 2
