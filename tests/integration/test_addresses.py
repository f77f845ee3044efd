"""Which pod has an address: the operator asks with its own permissions before it changes the models of a server."""

from __future__ import annotations

from collections.abc import Sequence

import kubernetes
import pytest

from support import operator_process
from support.api import Api, Object
from support.controlplane import ControlPlane
from triton_operator.api.servers import RunningServer
from triton_operator.cluster.addresses import Addresses
from triton_operator.cluster.api import KubernetesApi
from triton_operator.pods import Pod

pytestmark = pytest.mark.integration


def started(api: Api, name: str, address: str) -> Object:
    """Creates the pod of a server that has started, or changes its address."""
    container = {"name": "triton", "image": "a"}
    if api.find("Pod", name) is None:
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}})
    state = {**container, "imageID": "", "ready": True, "restartCount": 0, "started": True, "state": {"running": {}}}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [state]}
    return api.request("PUT", api.path("Pod", name) + "/status", {**api.get("Pod", name), "status": status})


def server(pod: Object) -> RunningServer:
    running = Pod(pod).server
    assert running is not None
    return running


@pytest.mark.parametrize("addresses", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")], ids=["IPv4", "IPv6"])
def test_a_change_of_models_goes_to_no_other_pod(
    control_plane: ControlPlane, api: Api, addresses: Sequence[str]
) -> None:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(operator_process.install(control_plane)), client_configuration=configuration)
    asked, key = Addresses(KubernetesApi(kubernetes.client.ApiClient(configuration))), f"{api.namespace}/a"
    first, other = server(started(api, "first", addresses[0])), server(started(api, "other", addresses[1]))
    assert asked.holds(key, first)
    assert asked.holds(key, other)
    # Its address has become that of another pod.
    started(api, "other", addresses[0])
    assert not asked.holds(key, other)
    # The pod is gone, and then another one has its name and its address.
    api.request("DELETE", api.path("Pod", "first") + "?gracePeriodSeconds=0")
    assert not asked.holds(key, first)
    started(api, "first", addresses[0])
    assert not asked.holds(key, first)


def test_an_api_server_that_does_not_answer_confirms_nothing(api: Api) -> None:
    nobody = kubernetes.client.Configuration("http://127.0.0.1:9")
    running = RunningServer("uid", "first", "10.0.0.1", (0, True))
    assert not Addresses(KubernetesApi(kubernetes.client.ApiClient(nobody))).holds(f"{api.namespace}/a", running)
