"""Misbehaving servers and Prometheus: they hang, send invalid answers or are down."""

from __future__ import annotations

import contextlib
import time

import pytest

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import leads
from support import bad_servers
from support.api import Api, condition, eventually
from support.bad_servers import Behaviour, answers
from support.fake_prometheus import FakePrometheus
from support.operator_process import Operator

pytestmark = pytest.mark.faults

BAD: dict[str, Behaviour] = {
    "hangs": bad_servers.hangs,
    "trickles": bad_servers.trickles,
    "trickles-without-a-length": bad_servers.trickles_without_a_length,
    "floods": bad_servers.floods,
    "floods-a-head": bad_servers.floods_a_head,
    "always-continues": bad_servers.always_continues,
    "compresses": bad_servers.compresses,
    "redirects": bad_servers.redirects("/"),
    "closes": bad_servers.closes,
    "no-http": bad_servers.speaks_no_http,
    "no-json": answers(b"<html>hello</html>"),
    "no-list": answers(b'{"name": "pre"}'),
    "no-name": answers(b'[{"state": "READY"}]'),
    "numbers": answers(b'[{"name": 1, "version": 2, "state": 3, "reason": 4}]'),
    "deep": answers(b"[" * 100_000),
    "null": answers(b"null"),
    "strange": answers('[{"name": "\\u0000🚦", "version": "x", "state": "GONE", "reason": "\\ud83d"}]'.encode()),
    "huge": answers(b'[{"name": "%s", "version": "1", "state": "UNAVAILABLE"}]' % (b"a" * 1_000_000)),
    "refuses": answers(b'{"error": "no"}', "500 Internal Server Error"),
    "nobody": lambda *_: None,
}


def test_misbehaving_servers_do_not_affect_other_tritonmodels(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """There are more bad servers than the operator has workers. The operator still reconciles other TritonModels."""
    addresses = {name: f"127.0.0.{number}" for number, name in enumerate(BAD, 20)}
    scene.kubelet.addresses |= addresses
    with contextlib.ExitStack() as stack:
        for name, behave in BAD.items():
            if name != "nobody":
                stack.enter_context(bad_servers.server(addresses[name], behave))
        operator = stack.enter_context(begin(WORKERS="4"))
        leads(operator)
        for name in BAD:
            scene.work.create(name, replicas=1)
        eventually(lambda: all(loaded(scene.api, n) for n in BAD), 90, lambda: unloaded(scene.api))
        with scene.work.running():
            time.sleep(2 * rounds.fault_seconds)
            for number in range(3):
                reaches(scene, operator, f"probe-{number}")
        scene.assert_converged(operator, max_memory=150)
        assert operator.get("/healthz") == "ok"
        assert operator.crashes == []
        assert operator.stop() == 0


def loaded(api: Api, name: str) -> str:
    """Returns the reason of the condition ModelsLoaded if the TritonModel is Ready, else ""."""
    model = api.get("TritonModel", name)
    ready = condition(model, "Ready").get("status") == "True"
    return condition(model, "ModelsLoaded").get("reason", "") if ready else ""


def unloaded(api: Api) -> dict[str, object]:
    return {n: api.get("TritonModel", n).get("status") for n in BAD if not loaded(api, n)}


def reaches(scene: Scene, operator: Operator, name: str) -> None:
    """Creates a TritonModel and waits for its Deployment. It usually takes 3 s, and 30 s with very slow requests."""
    began = time.monotonic()
    scene.work.create(name, replicas=1)
    eventually(lambda: scene.api.find("Deployment", name), 90, lambda: operator.log[-3000:])
    print(f"{name}: {time.monotonic() - began:.1f} s")


def test_reconciles_without_a_working_prometheus(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """Prometheus hangs, refuses, sends invalid answers, and then is down for a long time. Reconciles continue."""
    fake = FakePrometheus()
    with contextlib.closing(fake), begin(PROMETHEUS_URL=fake.url) as operator:
        leads(operator)
        with scene.work.running():
            for hang, status, body in ((4, 200, ""), (0, 503, ""), (0, 200, "<html>"), (0, 200, '{"status": 1}')):
                fake.hang, fake.status, fake.body = hang, status, body
                time.sleep(0.75 * rounds.fault_seconds)
                reaches(scene, operator, f"probe-{status}-{len(body)}-{hang}")
            fake.close()
            time.sleep(rounds.prometheus_seconds)
            reaches(scene, operator, "probe-gone")
        scene.assert_converged(operator)
        eventually(lambda: "PrometheusUnreachable" in reasons(scene.api, "ThresholdLive"), 30)
        fake.hang, fake.status, fake.body = 0.0, 200, ""
        fake.start()
        for model in scene.api.list("TritonModel"):
            limits = {t["kind"].replace("-", "_"): t["value"] for t in model["status"].get("thresholds", [])}
            fake.set_thresholds(scene.api.namespace, model["metadata"]["name"], **limits)
        if rounds.soak:  # the operator polls Prometheus again within a minute
            eventually(lambda: reasons(scene.api, "ThresholdLive") <= {"None", "Live", "NotMonitored", "Starting"}, 90)
        scene.assert_converged(operator)
        assert operator.crashes == []
        assert operator.stop() == 0


def reasons(api: Api, kind: str) -> set[str]:
    return {str(condition(m, kind).get("reason")) for m in api.list("TritonModel")}
