"""Conditions have a valid reason and a message that the API server accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import gen
from triton_operator.api import names
from triton_operator.api.status import KSTATUS, MODELS_LOADED, PROGRESSING, READY, TritonModelStatus
from triton_operator.pods import Pod, Problem
from triton_operator.reconcile.unread import observe
from triton_operator.status.conditions import condition
from triton_operator.status.untouched import unread

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


def told(
    *pods: Any, before: TritonModelStatus | None = None, replicas: int = 1, unseen: bool = False
) -> TritonModelStatus:
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": gen.NAME, "annotations": {names.ANNOTATION_TEMPLATE: gen.TEMPLATE}},
        "spec": {"replicas": replicas},
    }
    servers = observe([deployment] if pods or not replicas else [], map(Pod, pods), gen.NAME)
    return unread(before or TritonModelStatus(), INVALID, servers, "2026-01-01T00:00:00Z", 3, unseen=unseen)


def outline(status: TritonModelStatus) -> list[tuple[str, str, str]]:
    return [(c.type, c.status, c.reason) for c in status.for_people]


STOPPED = (PROGRESSING, "False", "SpecInvalid")


def test_reports_a_spec_that_cannot_be_read() -> None:
    status = told()
    assert outline(status) == [(READY, "False", "SpecInvalid"), STOPPED]
    assert all("spec.entrypoint: no" in c.message for c in status.for_people)
    assert {c.type: c.status for c in status.conditions if c.type in KSTATUS} == {
        "Reconciling": "False", "Stalled": "True",
    }  # fmt: skip
    assert status.observed_generation == 3
    assert told(before=status) == status


def test_ready_follows_the_pods_while_the_spec_cannot_be_read() -> None:
    before = TritonModelStatus(
        conditions=[
            condition(READY, "True", "EntrypointAnswers", "a answers"),
            condition(MODELS_LOADED, "True", "AllLoaded", "every model"),
        ],
        entrypoint="a",
        ready_replicas=2,
        replicas=2,
    )
    unknown = (MODELS_LOADED, "Unknown", "SpecInvalid")
    status = told(gen.pod(), gen.pod(gen.not_ready, name="b"), before=before)
    assert outline(status) == [(READY, "True", "EntrypointAnswers"), STOPPED, unknown]
    assert (status.ready_replicas, status.replicas) == (1, 2)
    assert status.conditions[0].message == "a answers"
    assert outline(told(before=before)) == [(READY, "False", "SpecInvalid"), STOPPED, unknown]
    assert told(before=before).ready_replicas == 0
    assert outline(told(before=before, replicas=0))[0] == (READY, "False", "ScaledToZero")
    assert outline(told(before=before, unseen=True))[0] == (READY, "Unknown", "SpecInvalid")
    assert outline(told(gen.pod(), before=before, unseen=True))[0] == (READY, "True", "EntrypointAnswers")
    crashed = told(gen.pod(gen.ended("triton", 1, "password hunter22")), before=before)
    assert outline(crashed)[0] == (READY, "False", "ServerCrashed")
    assert "hunter22" not in crashed.model_dump_json()
