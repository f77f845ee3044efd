"""TritonModels of earlier versions of the operator.

They selected pods by app.kubernetes.io/instance, and ran servers with a ServiceAccount of the TritonModel's name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import gen, operator_process
from support.api import Api, Object, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.operator_process import Operator
from support.people import make
from support.workload import Kubelet
from triton_operator.api import names

pytestmark = pytest.mark.integration

SOON = 60.0
FORMER = """
from triton_operator.api import names
from triton_operator.render import choose

names.selector, names.labels, names.account = names.former_selector, names.former_labels, lambda name: name
choose._has_former_account = lambda *_: False
"""
OURS, THEIRS = names.selector(gen.NAME), names.former_selector(gen.NAME)
ACCOUNT = names.account(gen.NAME)
RESTART: Object = {"spec": {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}}}


@contextmanager
def former_version(kubeconfig: Path, folder: Path) -> Iterator[Operator]:
    (folder / "former").mkdir()
    (folder / "former" / "sitecustomize.py").write_text(FORMER)
    path = os.pathsep.join(filter(None, [str(folder / "former"), os.environ.get("PYTHONPATH")]))
    with operator_process.running(kubeconfig, folder, PYTHONPATH=path) as operator:
        yield operator
        assert operator.stop() == 0


def selectors(api: Api) -> list[dict[str, str]]:
    """Returns the pod selector of each object of the TritonModel."""
    out = [api.get("Deployment", gen.NAME)["spec"]["selector"]["matchLabels"]]
    out += [api.get("Service", name)["spec"]["selector"] for name in (gen.NAME, f"{gen.NAME}-headless")]
    out += [api.get("PodDisruptionBudget", gen.NAME)["spec"]["selector"]["matchLabels"]]
    out += [api.get("NetworkPolicy", gen.NAME)["spec"]["podSelector"]["matchLabels"]]
    query = api.get("TritonModel", gen.NAME)["status"]["selector"]
    return [*out, dict(part.split("=") for part in query.split(","))]


def template(api: Api) -> Object:
    found: Object = api.get("Deployment", gen.NAME)["spec"]["template"]
    return found


def accounts(api: Api) -> set[str]:
    return {found["metadata"]["name"] for found in api.list("ServiceAccount", names.MANAGED_SELECTOR)}


def test_upgrade_changes_no_selector_and_no_server(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(control_plane)
    with former_version(kubeconfig, tmp_path) as operator:
        make(api, replicas=2, networkPolicy={})
        eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON, lambda: operator.log)
    before = template(api)
    assert selectors(api) == [THEIRS] * 6
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(lambda: api.find("ServiceAccount", ACCOUNT), SOON, lambda: operator.log)
        eventually(lambda: api.get("TritonModel", gen.NAME)["status"].get("newerTemplate"), SOON)
        assert (template(api), selectors(api)) == (before, [THEIRS] * 6)
        assert accounts(api) == {ACCOUNT, gen.NAME}
        # The account of running servers is repaired like everything else.
        api.delete("ServiceAccount", gen.NAME)
        eventually(lambda: accounts(api) == {ACCOUNT, gen.NAME}, SOON, lambda: operator.log)
        # Pods of the next spec have the labels of both, because the Deployment's selector can't change.
        api.patch("TritonModel", gen.NAME, RESTART)
        eventually(lambda: template(api) != before, SOON, lambda: operator.log)
        labels = template(api)["metadata"]["labels"]
        assert labels.items() >= {**OURS, **THEIRS}.items()
        assert template(api)["spec"]["serviceAccountName"] == ACCOUNT
        # No server runs as the former account any more.
        eventually(lambda: accounts(api) == {ACCOUNT}, SOON, lambda: operator.log)
        assert selectors(api) == [THEIRS] * 6
        # A Deployment that lost its owner reference is adopted as it is.
        api.patch("Deployment", gen.NAME, {"metadata": {"ownerReferences": None}})
        eventually(lambda: api.get("Deployment", gen.NAME)["metadata"].get("ownerReferences"), SOON)
        assert selectors(api) == [THEIRS] * 6
        # A recreated Deployment selects by the new label, and so do all other children.
        api.delete("Deployment", gen.NAME)
        eventually(
            lambda: api.find("Deployment", gen.NAME) and selectors(api) == [OURS] * 6, SOON, lambda: operator.log
        )
        assert not template(api)["metadata"]["labels"].items() & THEIRS.items()
        assert condition(api.get("TritonModel", gen.NAME), "Progressing")["reason"] == "RollingOut"
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def test_adopts_an_orphaned_deployment_of_an_earlier_version(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = operator_process.install(control_plane)
    with former_version(kubeconfig, tmp_path) as operator:
        make(api, replicas=2, networkPolicy={})
        eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON, lambda: operator.log)
    before = api.get("Deployment", gen.NAME)
    api.patch("Deployment", gen.NAME, {"metadata": {"ownerReferences": None}})
    with operator_process.running(kubeconfig, tmp_path) as operator:
        eventually(
            lambda: api.get("Deployment", gen.NAME)["metadata"].get("ownerReferences"), SOON, lambda: operator.log
        )
        after = api.get("Deployment", gen.NAME)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["template"] == before["spec"]["template"]
        eventually(lambda: selectors(api) == [THEIRS] * 6, SOON, lambda: operator.log)


class Clients:
    """Continuously records how many ready servers the Service has, and which pods no NetworkPolicy selects."""

    def __init__(self, api: Api) -> None:
        self._api, self._over = api, threading.Event()
        self.fewest, self.looks = 10**6, 0
        self.uncovered: set[str] = set()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._over.wait(0.02):
                self._look()
        except BaseException as error:
            self.error = error

    def _look(self) -> None:
        api = self._api
        servers = api.list("Pod", names.MANAGED_SELECTOR)
        service = api.get("Service", gen.NAME)["spec"]["selector"]
        reached = [p for p in api.list("Pod", names.as_query(service)) if is_ready(p)]
        self.fewest, self.looks = min(self.fewest, len(reached)), self.looks + 1
        covered = api.get("NetworkPolicy", gen.NAME)["spec"]["podSelector"]["matchLabels"]
        self.uncovered |= {p["metadata"]["name"] for p in servers if not has(p, covered)}


def has(pod: Object, labels: dict[str, str]) -> bool:
    return bool(labels.items() <= pod["metadata"]["labels"].items())


def is_ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]


def steps() -> list[str]:
    """Returns the commands of docs/operations.md that list, restart and migrate TritonModels of earlier versions."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split("### Servers of earlier versions")[1].split("\n## ")[0]
    return re.findall(r"```console\n(.*?)```", section, re.DOTALL)


def do(plane: ControlPlane, api: Api, commands: str) -> str:
    """Runs the commands for the TritonModel of this namespace; returns their output."""
    written = commands.replace("vision", api.namespace).replace("detector", gen.NAME)
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    return subprocess.run(["bash", "-ec", written], env=env, capture_output=True, text=True, check=True).stdout


def shown(plane: ControlPlane, api: Api) -> int:
    """Returns the number of servers that `kubectl triton status` shows."""
    command = [Path(sys.executable).parent / "kubectl-triton", "status", gen.NAME, "-n", api.namespace]
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    text = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
    return len(re.findall(rf"^ *{gen.NAME}-", text, re.MULTILINE))


@pytest.mark.parametrize("scaling", [{"replicas": 4}, {"autoscaling": {"min": 1, "max": 9}}], ids=["fixed", "scaled"])
def test_servers_move_to_the_new_selector_without_an_outage(
    scaling: Any, control_plane_with_controllers: ControlPlane, tmp_path: Path
) -> None:
    """As in docs/operations.md: a restart, and then a new Deployment that adopts the running servers."""
    plane = control_plane_with_controllers
    namespace = f"moving-{next(iter(scaling))}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    api = plane.api.in_namespace(namespace)
    kubeconfig = operator_process.install(plane)
    listing, restart, move = steps()

    def complete(labels: dict[str, str]) -> bool:
        """Returns whether four servers run, all with these labels and the newest pod template."""
        pods = [p for p in api.list("Pod") if "deletionTimestamp" not in p["metadata"]]
        newest = template(api)["metadata"]["labels"]
        return len(pods) == 4 and all(is_ready(p) and has(p, {**newest, **labels}) for p in pods)

    with Kubelet(api).running():
        with former_version(kubeconfig, tmp_path) as operator:
            make(api, networkPolicy={}, **scaling)
            eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
            api.patch("Deployment", gen.NAME, {"spec": {"replicas": 4}}, subresource="scale")
            eventually(lambda: complete(THEIRS), SOON, lambda: api.list("Pod"))
        with operator_process.running(kubeconfig, tmp_path) as operator, Clients(api) as clients:
            eventually(lambda: api.find("ServiceAccount", ACCOUNT), SOON, lambda: operator.log)
            assert f"{namespace}/{gen.NAME}" in do(plane, api, listing).split()
            assert shown(plane, api) == 4
            do(plane, api, restart)
            eventually(lambda: complete({**OURS, **THEIRS}), SOON, lambda: operator.log[-3000:])
            eventually(lambda: api.get("TritonModel", gen.NAME)["status"]["replicas"] == 4, SOON)
            # Nothing is left to wait for, and that is no error.
            do(plane, api, restart.splitlines()[1])
            do(plane, api, move)
            eventually(lambda: complete(OURS), SOON, lambda: operator.log[-3000:])
            assert f"{namespace}/{gen.NAME}" not in do(plane, api, listing).split()
            pods = api.list("Pod")
            assert not [p for p in pods if has(p, THEIRS) and "deletionTimestamp" not in p["metadata"]]
            eventually(lambda: selectors(api) == [OURS] * 6, SOON, lambda: operator.log[-3000:])
            eventually(lambda: accounts(api) == {ACCOUNT}, SOON, lambda: operator.log[-3000:])
            plane.wait_until_quiet()
            assert shown(plane, api) == 4
            deployment = api.get("Deployment", gen.NAME)
            assert deployment["spec"]["replicas"] == 4
            uids = {r["metadata"]["ownerReferences"][0]["uid"] for r in api.list("ReplicaSet")}
            assert uids == {deployment["metadata"]["uid"]}
            assert operator.stop() == 0
            assert "Traceback" not in operator.log
    assert clients.looks > 20
    assert (clients.fewest, clients.uncovered) == (4, set())
