"""The operator reads no Secret, and shows no sensitive value of a spec in logs, metrics, Events or status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import operator_process
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ControlPlane
from support.people import tritonmodel

pytestmark = pytest.mark.integration

SOON = 40.0
PLANTED = "planted-hunter2-value"


def wait_for_rejection(api: Api, name: str) -> str:
    """Waits until the status reports that the API server rejected a child. Returns the message."""

    def find_rejection() -> Object | None:
        progressing = condition(api.find("TritonModel", name), "Progressing")
        return progressing if progressing.get("reason") == "ApplyRefused" else None

    return str(eventually(find_rejection, SOON, lambda: api.get("TritonModel", name))["message"])


def test_no_sensitive_value_is_disclosed(plane: ControlPlane, tmp_path: Path) -> None:
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "secrets"}})
    api = plane.api.in_namespace("secrets")
    for name, kind in (("registry", "Secret"), ("planted", "Secret"), ("planted", "ConfigMap")):
        data = {"stringData" if kind == "Secret" else "data": {"key": PLANTED}}
        api.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **data})
    plain = {"name": "TOKEN", "value": PLANTED}
    source = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "planted", "key": "key"}}}
    pull = {"modelImage": {"reference": "r:1", "pullSecrets": [{"name": "registry"}]}}
    api.create(tritonmodel("good", server={"env": [plain, source]}, **pull))
    # The API server's error messages quote invalid values.
    wrong = {
        "both": {"env": [{**plain, **source}]},
        "nameless": {"env": [{"name": PLANTED + "=", "value": PLANTED + "="}]},
        "no-source": {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "x"}}}, plain]},
    }
    for name, server in wrong.items():
        api.create(tritonmodel(name, server=server))
    template = {"spec": {"containers": [{"name": "triton", "env": [{"name": "OTHER=", "value": PLANTED}, plain]}]}}
    api.create(tritonmodel("template", podTemplate=template))
    # The setting in the argument is sensitive, and the API server quotes it as the name of a variable.
    arguments = [f"--cache-config=redis,password={PLANTED}"]
    quoted = {"name": f"{PLANTED}=", "value": "x"}
    template = {"spec": {"containers": [{"name": "triton", "args": arguments, "env": [quoted]}]}}
    api.create(tritonmodel("arguments", podTemplate=template))
    kubeconfig = plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path, LOG_LEVEL="DEBUG") as operator:
        messages = {name: wait_for_rejection(api, name) for name in (*wrong, "template", "arguments")}
        eventually(lambda: condition(api.get("TritonModel", "good"), "Ready"), SOON, lambda: operator.log)
        api.patch("TritonModel", "good", {"spec": {"server": {"env": [{**plain, "value": PLANTED + "-2"}, source]}}})
        deployment = lambda: json.dumps(api.find("Deployment", "good"))  # noqa: E731
        eventually(lambda: PLANTED + "-2" in deployment(), SOON, lambda: operator.log)
        metrics = operator.get("/metrics")
        assert operator.stop() == 0
    events = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events")["items"]
    assert {e["regarding"]["name"] for e in events} >= set(wrong)
    status = [m.get("status") for m in api.list("TritonModel")]
    assert "triton_operator_models" in metrics
    assert "applied Deployment good" in operator.log
    assert "(hidden)" in messages["nameless"], messages
    for text in (operator.log, metrics, json.dumps(events), json.dumps(status)):
        assert PLANTED not in text


def test_operator_may_not_read_secrets(plane: ControlPlane) -> None:
    api = Api.of(plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME))
    for namespace in ("default", operator_process.NAMESPACE):
        for path in (api.path("Secret", namespace=namespace), api.path("Secret", "x", namespace)):
            with pytest.raises(RefusedError, match=r"cannot (list|get) resource"):
                api.request("GET", path)
