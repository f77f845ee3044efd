"""Leader election with two operators and one Lease: crashes, lost leases, hanging requests and API server outages."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import controlplane, fault_proxy, gen, operator_process
from support.api import MIN_WAIT_SECONDS, Api, Object, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.fault_proxy import WRITES, Fault
from support.operator_process import NAME, NAMESPACE
from support.people import make

pytestmark = pytest.mark.integration

API_SERVER, ETCD = "kube-apiserver", "etcd"


@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane) -> Path:
    return operator_process.install(control_plane)


def lease(plane: ControlPlane) -> Object:
    return dict(plane.api.get("Lease", NAME, NAMESPACE)["spec"])


def is_reconciled(api: Api, name: str = gen.NAME) -> Object | None:
    return condition(api.get("TritonModel", name), "Ready") and api.find("Deployment", name)


def image(api: Api) -> str:
    return str(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"])


def test_standby_leads_at_once_after_sigterm(
    api: Api, control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        make(api)
        eventually(lambda: is_reconciled(api), 10)
        assert (first.is_leader(), second.is_leader()) == (True, False)
        assert second.get("/readyz") == "ok"  # the standby watches too
        assert second.writes() == 0
        started = time.monotonic()
        assert first.stop() == 0
        # The bound is wide for busy machines, but below the lease duration.
        eventually(second.is_leader, 5)
        assert time.monotonic() - started < 12
        # The new leader sees changes.
        assert lease(control_plane)["holderIdentity"].startswith("operator-")
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: image(api) == "triton:2", 10)
        assert second.stop() == 0
        assert lease(control_plane)["holderIdentity"] == ""
        assert "Traceback" not in first.log + second.log


def test_standby_leads_after_the_lease_of_a_crashed_leader_expires(
    api: Api, control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        make(api, replicas=2)
        eventually(lambda: is_reconciled(api), 10)
        held = lease(control_plane)["holderIdentity"]
        first.stop(signal.SIGKILL)
        started = time.monotonic()
        # Changes while there is no leader.
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
        api.delete("Service", gen.NAME)
        make(api, "created-meanwhile")
        assert not second.is_leader()
        eventually(second.is_leader, 20)
        took = time.monotonic() - started
        assert 10 < took < 40, took  # 18 s on an idle machine
        eventually(
            lambda: (
                image(api) == "triton:2"
                and api.find("Service", gen.NAME)
                and api.find("PodDisruptionBudget", gen.NAME) is None
                and is_reconciled(api, "created-meanwhile")
            ),
            10,
        )
        assert lease(control_plane)["holderIdentity"] != held
        assert second.stop() == 0


def test_leader_that_lost_the_lease_exits(control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> None:
    """After a long pause of the process, another replica can hold the Lease. Only one replica may lead."""
    with operator_process.running(kubeconfig, tmp_path) as operator:
        taken_over = {
            "holderIdentity": "another",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        control_plane.api.patch("Lease", NAME, {"spec": taken_over}, namespace=NAMESPACE)
        assert operator.process.wait(MIN_WAIT_SECONDS) == 1
        assert lease(control_plane)["holderIdentity"] == "another"
    control_plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


def test_sigterm_ends_an_operator_that_cannot_reach_the_api_server(kubeconfig: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(re.sub(r"https://127\.0\.0\.1:\d+", "https://127.0.0.1:9", kubeconfig.read_text()))
    with operator_process.running(nowhere, tmp_path, wait=False) as operator:
        eventually(lambda: operator.get("/healthz") == "ok", 20, lambda: operator.log)
        assert operator.get("/readyz") == ""
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


GRACE_SECONDS = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())["spec"]["template"][
    "spec"
]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("until", [0, 13, None])
def test_sigterm_ends_the_operator_within_the_grace_period_despite_hanging_requests(
    until: int | None, api: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    """Writes of children hang. After `until` seconds every request hangs, so the Lease can't be released either."""
    with (
        fault_proxy.between(kubeconfig) as proxy,
        operator_process.running(proxy.kubeconfig_through(tmp_path), tmp_path) as operator,
    ):
        make(api)
        eventually(lambda: is_reconciled(api), 10)
        proxy.faults = (Fault("hang", verbs=WRITES, but=("leases",)),)
        hanging = "hang"
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: proxy.provoked.get(hanging), 20, lambda: operator.log)
        began = time.monotonic()
        operator.process.send_signal(signal.SIGTERM)
        if until is not None:
            time.sleep(until)
            proxy.cut_off = True
        assert operator.process.wait(120) in (0, 1)
        took = time.monotonic() - began
        print(f"ended after {took:.1f} s")
        assert took < GRACE_SECONDS - 4
        assert ("released the lease" in operator.log) == (until is None)
        assert "Traceback" not in operator.log


def test_sigterm_ends_an_operator_whose_first_requests_hang(kubeconfig: Path, tmp_path: Path) -> None:
    with fault_proxy.between(kubeconfig) as proxy:
        proxy.cut_off = True
        through = proxy.kubeconfig_through(tmp_path)
        with operator_process.running(through, tmp_path, wait=False) as operator:
            eventually(lambda: operator.get("/healthz") == "ok", 20, lambda: operator.log)
            began = time.monotonic()
            assert operator.stop(within=120) == 0
            took = time.monotonic() - began
            print(f"ended after {took:.1f} s")
            assert took < 5


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    """A control plane of the test's own, whose API server the test stops."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


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
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: is_reconciled(api), 10)
        own_plane.kill(API_SERVER)
        time.sleep(1)
        restart_and_change(own_plane, api)
        if operator.process.poll() is None:
            eventually(lambda: repaired(api), 30, lambda: operator.log[-3000:])
            assert operator.process.poll() is None
            assert operator.stop() == 0
        else:  # the API server started only after the renew deadline
            assert operator.process.returncode == 1


def test_leader_exits_in_a_long_outage_and_corrects_drift_after_its_restart(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    api, kubeconfig = start_with_one_model(own_plane)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: is_reconciled(api), 10)
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
    """Prometheus uses its gauges. Its watches get no events until the resource versions reach the old ones again."""
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
