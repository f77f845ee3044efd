"""Leader election with two operators and one Lease: crashes, lost leases and hanging requests."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from support import clock, fault_proxy, gen, operator_process
from support.api import MIN_WAIT_SECONDS, Api, Object, condition, eventually, states
from support.controlplane import ROOT, ControlPlane
from support.fault_proxy import WRITES, Fault
from support.operator_process import NAME, NAMESPACE, Operator, Restart
from support.people import make

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane) -> Path:
    return operator_process.install(control_plane)


def lease(plane: ControlPlane) -> Object:
    return dict(plane.api.get("Lease", NAME, NAMESPACE)["spec"])


def is_reconciled(api: Api, name: str = gen.NAME) -> Object | None:
    return condition(api.get("TritonModel", name), "Ready") and api.find("Deployment", name)


def image(api: Api) -> str:
    return str(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"])


def time_of(lease: Object, field: str) -> datetime:
    return datetime.fromisoformat(lease[field])


def leader_and_standby(first: Operator, second: Operator) -> tuple[Operator, Operator]:
    """Waits until one of the two leads and the other one is ready, and returns them in this order.

    The first one doesn't always lead: on a busy machine it may have lost the Lease, and then starts again.
    """

    def roles() -> tuple[Operator, Operator] | None:
        leader, standby = (second, first) if second.is_leader() else (first, second)
        # The standby watches too.
        ready = standby.get("/readyz") == "ok" and "triton_operator_leading 0.0" in standby.get("/metrics")
        return (leader, standby) if ready and leader.is_leader() else None

    return eventually(roles, MIN_WAIT_SECONDS, lambda: first.log + second.log)


def test_standby_leads_at_once_after_sigterm(
    api: Api, control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        make(api)
        eventually(lambda: is_reconciled(api), 10)
        leader, standby = leader_and_standby(first, second)
        assert standby.writes() == 0
        started = clock.of_an_idle_machine()
        assert leader.stop() == 0
        # The bound is wide for busy machines, but below the lease duration.
        eventually(standby.is_leader, 5)
        assert clock.of_an_idle_machine() - started < 12
        # The new leader sees changes.
        assert lease(control_plane)["holderIdentity"].startswith("operator-")
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: image(api) == "triton:2", 10)
        assert standby.stop() == 0
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
        leader, standby = leader_and_standby(first, second)
        held = lease(control_plane)
        leader.stop(signal.SIGKILL)
        idle = clock.of_an_idle_machine()
        # Changes while there is no leader.
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
        api.delete("Service", gen.NAME)
        make(api, "created-meanwhile")
        eventually(standby.is_leader, 20)
        assert clock.of_an_idle_machine() - idle < 40  # usually 18 s
        # The Lease says how long nobody led. The test may have been late on a busy machine.
        taken = lease(control_plane)
        assert taken["holderIdentity"] != held["holderIdentity"]
        assert (time_of(taken, "acquireTime") - time_of(held, "renewTime")).total_seconds() > 14
        eventually(
            lambda: (
                image(api) == "triton:2"
                and api.find("Service", gen.NAME)
                and api.find("PodDisruptionBudget", gen.NAME) is None
                and is_reconciled(api, "created-meanwhile")
            ),
            10,
        )
        assert standby.stop() == 0


def test_holder_keeps_a_deleted_lease(control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> None:
    """The standby must not create it, because the holder goes on until it notices."""
    api = control_plane.api.in_namespace(NAMESPACE)
    with (
        operator_process.running(kubeconfig, tmp_path) as first,
        operator_process.running(kubeconfig, tmp_path, lead=False) as second,
    ):
        leader, standby = leader_and_standby(first, second)
        holder = lease(control_plane)["holderIdentity"]
        for _ in range(5):
            uid = api.get("Lease", NAME)["metadata"]["uid"]
            api.delete("Lease", NAME)
            current = eventually(lambda: api.find("Lease", NAME), MIN_WAIT_SECONDS, lambda: first.log + second.log)
            assert current["metadata"]["uid"] != uid
            assert current["spec"]["holderIdentity"] == holder
        assert (leader.is_leader(), standby.is_leader()) == (True, False)
        assert standby.stop() == 0
        assert leader.stop() == 0


def test_leader_that_lost_the_lease_exits(control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> None:
    """After a long pause of the process, another replica can hold the Lease. Only one replica may lead."""
    with operator_process.running(kubeconfig, tmp_path, restart=Restart.NEVER) as operator:
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


def test_corrects_a_write_of_the_former_leader_that_comes_late(api: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """An API server that was frozen makes the forced write of the leader that died after the next one began."""
    with (
        fault_proxy.between(kubeconfig) as proxy,
        operator_process.running(proxy.kubeconfig_through(tmp_path), tmp_path) as first,
        contextlib.ExitStack() as stack,
    ):
        make(api)
        eventually(lambda: is_reconciled(api), 10)
        proxy.faults = (Fault("late", verbs=("PATCH",), resources=("deployments",)),)
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: proxy.provoked.get("late"), 20, lambda: first.log)
        # Only now, so that the first one makes this write also if it has lost its Lease on a busy machine.
        second = stack.enter_context(operator_process.running(kubeconfig, tmp_path, lead=False))
        first.stop(signal.SIGKILL)
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:3"}}})
        eventually(lambda: image(api) == "triton:3", 60, lambda: second.log)
        before = api.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        proxy.heal()

        def images() -> list[str]:
            later = states(api, "Deployment", gen.NAME, before)
            return [d["spec"]["template"]["spec"]["containers"][0]["image"] for d in later]

        eventually(lambda: "triton:2" in images(), 20, lambda: f"the late write: {proxy.late or 'not made'}")
        eventually(lambda: images()[-1] == "triton:3", 20, lambda: second.log)


@pytest.mark.parametrize("until", [0, 13, None])
def test_sigterm_ends_the_operator_within_the_grace_period_despite_hanging_requests(
    until: int | None, api: Api, kubeconfig: Path, tmp_path: Path
) -> None:
    """Writes of children hang. After `until` seconds every request hangs, so the Lease can't be released either."""
    with (
        fault_proxy.between(kubeconfig) as proxy,
        operator_process.running(proxy.kubeconfig_through(tmp_path), tmp_path, restart=Restart.NEVER) as operator,
    ):
        make(api)
        eventually(lambda: is_reconciled(api), 10)
        proxy.faults = (Fault("hang", verbs=WRITES, but=("leases",)),)
        hanging = "hang"
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        eventually(lambda: proxy.provoked.get(hanging), 20, lambda: operator.log)
        began = clock.of_an_idle_machine()
        operator.process.send_signal(signal.SIGTERM)
        if until is not None:
            time.sleep(until)
            proxy.cut_off = True
        assert operator.process.wait(120) in (0, 1)
        took = clock.of_an_idle_machine() - began
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
            began = clock.of_an_idle_machine()
            assert operator.stop(within=120) == 0
            took = clock.of_an_idle_machine() - began
            print(f"ended after {took:.1f} s")
            assert took < GRACE_SECONDS - 4
