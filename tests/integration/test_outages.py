"""Outages of the API server and of etcd, each with a control plane of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import controlplane, gen, operator_process
from support.api import MIN_WAIT_SECONDS, Api, Object, condition, eventually
from support.controlplane import ControlPlane
from support.operator_process import NAME, NAMESPACE, Restart
from support.people import make

pytestmark = pytest.mark.integration

API_SERVER, ETCD = "kube-apiserver", "etcd"


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    """A control plane of the test's own, whose API server the test stops."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


def image(api: Api) -> str:
    return str(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"])


def start_with_one_model(plane: ControlPlane) -> tuple[Api, Path]:
    kubeconfig = operator_process.install(plane)
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
    api = plane.api.in_namespace("vision")
    make(api)
    return api, kubeconfig


def restart_and_change(plane: ControlPlane, api: Api) -> None:
    plane.start(API_SERVER)
    api.delete("Service", gen.NAME)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})


def repaired(api: Api) -> bool:
    return bool(image(api) == "triton:2" and api.find("Service", gen.NAME))


def test_leader_survives_a_short_outage(own_plane: ControlPlane, tmp_path: Path) -> None:
    api, kubeconfig = start_with_one_model(own_plane)
    with operator_process.running(kubeconfig, tmp_path, restart=Restart.NEVER) as operator:
        eventually(lambda: condition(api.get("TritonModel", gen.NAME), "Ready"), 10)
        own_plane.kill(API_SERVER)
        time.sleep(1)
        restart_and_change(own_plane, api)
        eventually(lambda: operator.process.poll() is not None or repaired(api), 30, lambda: operator.log[-3000:])
        if operator.process.poll() is None:
            assert operator.stop() == 0
        else:  # the API server started only after the renew deadline
            assert operator.process.returncode == 1


def test_leader_exits_in_a_long_outage_and_corrects_drift_after_its_restart(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    api, kubeconfig = start_with_one_model(own_plane)
    with operator_process.running(kubeconfig, tmp_path, restart=Restart.NEVER) as operator:
        eventually(lambda: condition(api.get("TritonModel", gen.NAME), "Ready"), 10)
        own_plane.kill(API_SERVER)
        # It must stop before another replica can lead, as client-go's leader election does.
        assert operator.process.wait(MIN_WAIT_SECONDS) == 1
        restart_and_change(own_plane, api)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: repaired(api), 10, lambda: operator.log[-3000:])
        assert operator.stop() == 0


def test_standby_survives_a_long_outage(own_plane: ControlPlane, tmp_path: Path) -> None:
    api, kubeconfig = start_with_one_model(own_plane)
    holder = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": holder}  # fmt: skip
    own_plane.api.create(body)
    with operator_process.running(kubeconfig, tmp_path, lead=False) as operator:
        time.sleep(1)  # readiness comes shortly before the watches are established
        own_plane.kill(API_SERVER)
        time.sleep(12)
        assert operator.process.poll() is None
        restart_and_release_the_lease(own_plane)
        eventually(operator.is_leader, 30, lambda: operator.log[-3000:])
        eventually(lambda: api.find("Deployment", gen.NAME), 10, lambda: operator.log[-3000:])
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: repaired(api), 30, lambda: operator.log[-3000:])
        assert operator.stop() == 0


def restart_and_release_the_lease(plane: ControlPlane) -> None:
    plane.start(API_SERVER)
    plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


def test_standby_drops_state_that_a_restore_from_backup_undid(own_plane: ControlPlane, tmp_path: Path) -> None:
    """Prometheus uses its gauges. Its watches get no events until the resource versions reach the old ones again.

    It notices that by the Lease, which the leader, here the test, renews.
    """
    api, kubeconfig = start_with_one_model(own_plane)
    api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": "5"}}})
    own_plane.api.create(held_by_another())
    for program in (API_SERVER, ETCD):
        own_plane.kill(program)
    shutil.copytree(own_plane.folder / "etcd", own_plane.folder / "backup")
    own_plane.programs[ETCD].start()
    own_plane.start(API_SERVER)
    with operator_process.running(kubeconfig, tmp_path, lead=False) as operator:
        for number in range(300):
            api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": str(1000 + number)}}})
        make(api, "undone")

        def thresholds() -> tuple[float, float]:
            limit = operator.metric_sum("triton_operator_threshold", tritonmodel=gen.NAME, kind="max-qps")
            return limit, operator.metric_sum("triton_operator_models")

        eventually(lambda: thresholds() == (1299.0, 2.0), 20, thresholds)
        renewal = {"spec": {"renewTime": "2026-01-01T00:00:02.000000Z"}}
        own_plane.api.patch("Lease", NAME, renewal, namespace=NAMESPACE)

        def reads() -> float:
            return operator.metric_sum("triton_operator_api_requests_total", verb="GET", resource="leases")

        # The first of these reads may have begun before the renewal.
        before = reads()
        eventually(lambda: reads() >= before + 2, 10, reads)
        for program in (API_SERVER, ETCD):
            own_plane.kill(program)
        shutil.rmtree(own_plane.folder / "etcd")
        shutil.move(own_plane.folder / "backup", own_plane.folder / "etcd")
        own_plane.programs[ETCD].start()
        own_plane.start(API_SERVER)
        eventually(lambda: thresholds() == (5.0, 1.0), 30, lambda: f"{thresholds()}\n{operator.log[-3000:]}")
        # The watches continue from the lower resource versions.
        time.sleep(1)
        api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": "6"}}})
        eventually(lambda: thresholds()[0] == 6.0, 10, lambda: f"{thresholds()}\n{operator.log[-3000:]}")
        assert operator.stop() == 0


def held_by_another() -> Object:
    holder = {"holderIdentity": "gone", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": holder,
    }
