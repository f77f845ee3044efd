"""Two operators and one Lease; the loss of either, and of the API server."""

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
from support.api import PATIENCE, Api, Object, condition, eventually
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


def served(api: Api, name: str = gen.NAME) -> Object | None:
    return condition(api.get("TritonModel", name), "Ready") and api.find("Deployment", name)


def image(api: Api) -> str:
    return str(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"])


def test_sigterm_ends_well_and_the_next_leads_at_once(
    api: Api, control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        make(api)
        eventually(lambda: served(api), 10)
        assert (first.leads(), second.leads()) == (True, False)
        assert second.ask("/readyz") == "ok"  # it watches, so that it knows all when it leads
        assert second.writes() == 0
        started = time.monotonic()
        assert first.stop() == 0
        # At once; and on a busy machine before the lease would have run out.
        eventually(second.leads, 5)
        assert time.monotonic() - started < 12
        # What was changed while nobody led is seen.
        assert lease(control_plane)["holderIdentity"].startswith("operator-")
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: image(api) == "triton:2", 10)
        assert second.stop() == 0
        assert lease(control_plane)["holderIdentity"] == ""
        assert "Traceback" not in first.log + second.log


def test_after_a_crash_the_next_leads_when_the_lease_has_run_out(
    api: Api, control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        make(api, replicas=2)
        eventually(lambda: served(api), 10)
        held = lease(control_plane)["holderIdentity"]
        first.stop(signal.SIGKILL)
        started = time.monotonic()
        # While nobody leads, the world goes on.
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
        api.delete("Service", gen.NAME)
        make(api, "born-meanwhile")
        assert not second.leads()
        eventually(second.leads, 20)
        took = time.monotonic() - started
        assert 10 < took < 40, took  # 18 where nothing else runs
        eventually(
            lambda: (
                image(api) == "triton:2"
                and api.find("Service", gen.NAME)
                and api.find("PodDisruptionBudget", gen.NAME) is None
                and served(api, "born-meanwhile")
            ),
            10,
        )
        assert lease(control_plane)["holderIdentity"] != held
        assert second.stop() == 0


def test_one_that_lost_the_lease_stops(control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> None:
    """As after a long pause of the process: another holds it now, and no two may work."""
    with operator_process.running(kubeconfig, tmp_path) as operator:
        usurped = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        control_plane.api.patch("Lease", NAME, {"spec": usurped}, namespace=NAMESPACE)
        assert operator.process.wait(PATIENCE) == 1
        assert lease(control_plane)["holderIdentity"] == "another"
    control_plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


def test_sigterm_while_it_waits_for_the_api_server(kubeconfig: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(re.sub(r"https://127\.0\.0\.1:\d+", "https://127.0.0.1:9", kubeconfig.read_text()))
    with operator_process.running(nowhere, tmp_path, wait=False) as operator:
        eventually(lambda: operator.ask("/healthz") == "ok", 20, lambda: operator.log)
        assert operator.ask("/readyz") == ""
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


GRACE_SECONDS = yaml.safe_load((ROOT / "manifests" / "operator" / "deployment.yaml").read_text())["spec"]["template"][
    "spec"
]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("until", [0, 13, None])
def test_sigterm_ends_it_within_the_grace_period_whatever_hangs(
    until: int | None, api: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    """Writes of passes hang, and after `until` seconds every request, so that the Lease can't be given back either."""
    with (
        fault_proxy.between(kubeconfig) as proxy,
        operator_process.running(proxy.kubeconfig_through(tmp_path), tmp_path) as operator,
    ):
        make(api)
        eventually(lambda: served(api), 10)
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


def test_sigterm_while_the_api_server_hangs_at_the_start(kubeconfig: Path, tmp_path: Path) -> None:
    with fault_proxy.between(kubeconfig) as proxy:
        proxy.cut_off = True
        through = proxy.kubeconfig_through(tmp_path)
        with operator_process.running(through, tmp_path, wait=False) as operator:
            eventually(lambda: operator.ask("/healthz") == "ok", 20, lambda: operator.log)
            began = time.monotonic()
            assert operator.stop(within=120) == 0
            took = time.monotonic() - began
            print(f"ended after {took:.1f} s")
            assert took < 5


@pytest.fixture
def own() -> Iterator[ControlPlane]:
    """One whose API server may be taken away."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


def world(plane: ControlPlane) -> tuple[Api, Path]:
    kubeconfig = operator_process.install(plane)
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
    api = plane.api.within("vision")
    make(api)
    return api, kubeconfig


def after(plane: ControlPlane, api: Api) -> None:
    plane.start(API_SERVER)
    api.delete("Service", gen.NAME)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})


def repaired(api: Api) -> bool:
    return bool(image(api) == "triton:2" and api.find("Service", gen.NAME))


def test_a_short_outage_is_sat_out(own: ControlPlane, tmp_path: Path) -> None:
    api, kubeconfig = world(own)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: served(api), 10)
        own.kill(API_SERVER)
        time.sleep(1)
        after(own, api)
        if operator.process.poll() is None:
            eventually(lambda: repaired(api), 30, lambda: operator.log[-3000:])
            assert operator.process.poll() is None
            assert operator.stop() == 0
        else:  # the API server took longer to come back than the lease is held
            assert operator.process.returncode == 1


def test_a_long_outage_ends_the_leader_and_its_next_life_repairs_all(own: ControlPlane, tmp_path: Path) -> None:
    api, kubeconfig = world(own)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: served(api), 10)
        own.kill(API_SERVER)
        # It must stop before another could lead: client-go's own leaders do the same.
        assert operator.process.wait(PATIENCE) == 1
        after(own, api)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: repaired(api), 10, lambda: operator.log[-3000:])
        assert operator.stop() == 0


def test_a_follower_outlives_a_long_outage(own: ControlPlane, tmp_path: Path) -> None:
    api, kubeconfig = world(own)
    holder = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": holder}  # fmt: skip
    own.api.create(body)
    with operator_process.running(kubeconfig, tmp_path, lead=False) as operator:
        time.sleep(1)  # it is ready a moment before its watches stand
        own.kill(API_SERVER)
        time.sleep(12)
        assert operator.process.poll() is None
        after_lease(own)
        eventually(operator.leads, 30, lambda: operator.log[-3000:])
        eventually(lambda: api.find("Deployment", gen.NAME), 10, lambda: operator.log[-3000:])
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: repaired(api), 30, lambda: operator.log[-3000:])
        assert operator.stop() == 0


def after_lease(plane: ControlPlane) -> None:
    plane.start(API_SERVER)
    plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


def test_a_follower_forgets_what_a_restore_from_a_backup_has_undone(own: ControlPlane, tmp_path: Path) -> None:
    """Its gauges are what Prometheus compares with. Its watches would hear nothing until the versions had caught up."""
    api, kubeconfig = world(own)
    api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": "5"}}})
    own.api.create(held_by_another())
    for program in (API_SERVER, ETCD):
        own.kill(program)
    shutil.copytree(own.folder / "etcd", own.folder / "backup")
    own.programs[ETCD].start()
    own.start(API_SERVER)
    with operator_process.running(kubeconfig, tmp_path, lead=False) as operator:
        for number in range(300):
            api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"max_qps": str(1000 + number)}}})
        make(api, "undone")

        def thresholds() -> tuple[float, float]:
            limit = operator.counted("triton_operator_threshold", tritonmodel=gen.NAME, kind="max-qps")
            return limit, operator.counted("triton_operator_models")

        eventually(lambda: thresholds() == (1299.0, 2.0), 20, thresholds)
        for program in (API_SERVER, ETCD):
            own.kill(program)
        shutil.rmtree(own.folder / "etcd")
        shutil.move(own.folder / "backup", own.folder / "etcd")
        own.programs[ETCD].start()
        own.start(API_SERVER)
        eventually(lambda: thresholds() == (5.0, 1.0), 30, lambda: f"{thresholds()}\n{operator.log[-3000:]}")
        # The watches go on from the lower numbers.
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
