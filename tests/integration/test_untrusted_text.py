"""Messages of servers and components appear in status, Events, logs and terminals as plain text of limited length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support import bad_servers, gen, operator_process
from support.api import Api, Object, condition, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import tritonmodel
from triton_operator.reconcile.events import BURST, REFILL_SECONDS

pytestmark = pytest.mark.integration

SERVER = f"127.96.{os.getpid() % 250}.1"
"""An address that no other process uses: another clone may run the same tests."""
FORGED = "2026-01-01 00:00:00,000 INFO    forged: all is well"
HOSTILE = f"words\x1b[2J\x1b[31m\x1b]0;title\x07 \u202etxet \x9b1m\r\n{FORGED}\nEvents: <none>\u2028{FORGED}"
OUT_OF_MEMORY = gen.ended("triton", 137, reason="OOMKilled")


@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane) -> Path:
    return operator_process.install(control_plane)


@pytest.fixture(scope="module")
def operator(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("operator")
    with operator_process.running(kubeconfig, folder, LOG_FORMAT="plain", LOG_LEVEL="DEBUG") as process:
        yield process


def events(api: Api, name: str) -> list[str]:
    """Returns the notes of the Events about this TritonModel."""
    entries = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events")["items"]
    return [event["note"] for event in entries if event["regarding"]["name"] == name]


def command(plane: ControlPlane, *arguments: object) -> str:
    """Runs a command as the cluster admin; returns its output."""
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    result = subprocess.run(list(map(str, arguments)), env=env, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr


def is_text(text: str) -> bool:
    """Returns whether the text contains only printable characters, and no line of HOSTILE."""
    lines = text.split("\n")
    forged = [line for line in lines if line.startswith((FORGED, "Events: <none>"))]
    return all(line.isprintable() for line in lines) and not forged


def evicted(pod: Object) -> None:
    gen.failed("Evicted", HOSTILE)(pod)
    gen.condition("DisruptionTarget", "True", lastTransitionTime=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")(pod)


def test_shows_messages_of_servers_and_components_as_plain_text(
    api: Api, control_plane: ControlPlane, operator: Operator
) -> None:
    api.create(tritonmodel("detection"))
    eventually(lambda: api.find("Deployment", "detection"), 60, lambda: operator.log[-2000:])
    index = [{"name": f"net{HOSTILE}", "version": "1", "state": "UNAVAILABLE", "reason": HOSTILE}]
    report = gen.report(f"pre{HOSTILE}", "detection", entrypoint="detection")
    finding = {"code": "TR101", "severity": "error", "file": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}
    states = {
        "ServerCrashed": gen.ended("triton", 1, HOSTILE),
        "ImagePullFailed": gen.waiting("fetch", "ErrImagePull", HOSTILE),
        "Unschedulable": gen.unschedulable(HOSTILE),
        "RepositoryInvalid": gen.ended("check", 1, json.dumps(gen.report("pre", findings=[finding]))),
        "Evicted": evicted,
        "EntrypointAnswers": gen.checked(report),
    }
    texts: dict[str, str] = {}
    with bad_servers.server(SERVER, bad_servers.answers(json.dumps(index).encode())):
        for reason, state in states.items():
            add_pod(api, state, gen.put("status.podIP", SERVER))
            eventually(
                lambda r=reason: has_ready_reason(api, r), 60, lambda: api.get("TritonModel", "detection").get("status")
            )
            place = ("-n", api.namespace, "detection")
            texts[f"status, {reason}"] = command(control_plane, Path(sys.executable).with_name("kubectl-triton"),
                                                 "status", *place)  # fmt: skip
        eventually(lambda: "net" in json.dumps(api.get("TritonModel", "detection")["status"].get("models", [])), 60)
    texts["describe"] = command(control_plane, "kubectl", "-n", api.namespace, "describe", "tritonmodels", "detection")
    texts["log"] = "\n".join(line for line in operator.log.split("\n") if not line.startswith("    "))
    status = api.get("TritonModel", "detection")["status"]
    texts |= {f"condition {c['type']}": c["message"] for c in status["conditions"]}
    texts |= {f"field {field} of a model": model[field] for model in status["models"] for field in model}
    notes = eventually(lambda: len(events(api, "detection")) >= 5 and events(api, "detection"), 60)
    texts |= {f"Event {number}": note for number, note in enumerate(notes)}
    assert [what for what, text in texts.items() if not is_text(text)] == []
    assert "words?[2J" in texts["log"]
    assert "words?[2J" in texts["describe"]


def has_ready_reason(api: Api, reason: str) -> bool:
    return bool(condition(api.get("TritonModel", "detection"), "Ready").get("reason") == reason)


def test_limits_the_events_of_a_tritonmodel_that_changes_state_often(api: Api, operator: Operator) -> None:
    # Before the first Event: with it the bucket begins to refill.
    began = time.monotonic()
    for name in ("flips", "other"):
        api.create(tritonmodel(name))
        eventually(lambda n=name: api.find("Deployment", n), 60, lambda: operator.log[-2000:])
    for number in range(BURST + 5):
        state, reason = ((OUT_OF_MEMORY,), "OutOfMemory") if number % 2 else ((), "EntrypointAnswers")
        add_pod(api, *state, gen.put("status.podIP", ""), name="flips-1", model="flips")
        ready = lambda r=reason: condition(api.get("TritonModel", "flips"), "Ready").get("reason") == r  # noqa: E731
        eventually(ready, 60, lambda: operator.log[-2000:])
    add_pod(api, OUT_OF_MEMORY, name="other-1", model="other")
    eventually(lambda: events(api, "other"), 60, lambda: operator.log[-2000:])
    eventually(lambda: len(events(api, "flips")) >= BURST, 60, lambda: events(api, "flips"))
    posted = len(events(api, "flips"))
    # On a slow machine the changes take long enough for another Event.
    assert BURST <= posted <= BURST + (time.monotonic() - began) // REFILL_SECONDS
