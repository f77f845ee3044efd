"""The operator writes nothing while no TritonModel changes.

The metrics of the API server and of the operator count the writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import gen, operator_process
from support.api import MIN_WAIT_SECONDS, Api, condition, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

RESYNC = 3
SPECS: dict[str, dict[str, object]] = {
    "plain": {},
    "replicas": {"replicas": 3},
    "gpu": {"server": {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "1000m", "memory": "0.5Gi"}}}},
    # Values that the API server stores differently or drops.
    "odd": {
        "server": {"env": [{"name": "EMPTY", "value": ""}], "resources": {"limits": {"cpu": "0.1", "memory": "1e9"}}},
        "podTemplate": {
            "metadata": {"annotations": {"note": "🚦"}},
            "spec": {
                "affinity": {"nodeAffinity": None},
                "hostNetwork": False,
                "topologySpreadConstraints": [
                    {"maxSkew": n, "topologyKey": "zone", "whenUnsatisfiable": when}
                    for n, when in ((1, "ScheduleAnyway"), (2, "DoNotSchedule"))
                ],
                "containers": [
                    {"name": "side", "image": "s:1",
                     "ports": [{"containerPort": 53, "protocol": p} for p in ("TCP", "UDP")]}
                ],
            },
        },
    },
    # Parts that the API server owns as a whole, and to which it adds defaults.
    "whole": {
        "networkPolicy": {
            "clients": [{"podSelector": {}, "namespaceSelector": {}}],
            "egress": [{"ports": [{"port": 443}]}],
        },
        "autoscaling": {
            "max": 3,
            "behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
        },
        "podTemplate": {
            "spec": {
                "nodeSelector": {"disk": "fast"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "volumes": [{"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
                "containers": [
                    {
                        "name": "side",
                        "image": "s:1",
                        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    }
                ],
            }
        },
    },
    "common": {
        "commonMetadata": {"labels": {"team": "", "cost": "1"}, "annotations": {"team": "", "example.com/a": "🚦"}},
        "podTemplate": {"metadata": {"labels": {"team": "a"}, "annotations": {"team": ""}}},
        "networkPolicy": {},
        "autoscaling": {"max": 3},
        "entrypoint": "a",
        "server": {"modelControl": "explicit", "loadModels": ["a"]},
    },
    "refused": {"podTemplate": {"spec": {"restartPolicy": "Never"}}},
}  # fmt: skip


@pytest.fixture
def operator(control_plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[Operator]:
    """Watches only the namespace of this test: refused writes of other tests' TritonModels are retried."""
    kubeconfig = operator_process.install(control_plane)
    settings = {"RESYNC_SECONDS": str(RESYNC), "WATCH_NAMESPACES": api.namespace}
    with operator_process.running(kubeconfig, tmp_path, **settings) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log


def add_status_of_another_manager(api: Api, name: str, *kinds: str, **fields: object) -> None:
    """Server-side apply keeps conditions of these kinds, and fields."""
    model = api.get("TritonModel", name)
    theirs = [{**condition(model, "Progressing"), "type": kind} for kind in kinds]
    body = {k: model[k] for k in ("apiVersion", "kind")} | {
        "metadata": {"name": name},
        "status": {"conditions": theirs, **fields},
    }
    path = f"{api.path('TritonModel', name)}/status?fieldManager=approver"
    api.request("PATCH", path, body, "application/apply-patch+yaml")


def test_writes_nothing_during_two_resyncs(api: Api, control_plane: ControlPlane, operator: Operator) -> None:
    for name, spec in SPECS.items():
        make(api, name, **spec)
    for name in SPECS:
        reason = "ApplyRefused" if name == "refused" else "RollingOut"
        eventually(
            lambda n=name, r=reason: condition(api.get("TritonModel", n), "Progressing").get("reason") == r,
            15,
            lambda n=name: api.get("TritonModel", n).get("status"),
        )
    add_status_of_another_manager(api, "plain", "example.com/Approved")
    # A status that a backup tool has restored: what the operator itself leaves out, it can't remove.
    restored = {"current": False, "message": "restored"}
    add_status_of_another_manager(api, "replicas", "AutoscalerActive", calibration=restored)
    # A rejected apply is retried, which is a write. So the test deletes this TritonModel first.
    api.delete("TritonModel", "refused")
    control_plane.wait_until_quiet()
    before, own, passes = control_plane.writes(), operator.writes(), operator.reconciles(result="ok")
    assert sum(before.values()) > 20  # the counter works
    deadline = time.monotonic() + 4 * MIN_WAIT_SECONDS
    while operator.reconciles(result="ok") < passes + 2 * (len(SPECS) - 1) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert operator.reconciles(result="ok") >= passes + 2 * (len(SPECS) - 1)
    time.sleep(0.5)
    assert control_plane.writes() == before
    assert operator.writes() == own


def test_restarted_operator_writes_nothing(
    api: Api, control_plane: ControlPlane, operator: Operator, tmp_path: Path
) -> None:
    """An upgrade of the operator, here with a new tools image, doesn't change running servers."""
    for name in ("plain", "gpu", "whole"):
        make(api, name, **SPECS[name])
    for name in ("plain", "gpu", "whole"):
        eventually(lambda n=name: condition(api.get("TritonModel", n), "Progressing"), 15)
    add_status_of_another_manager(api, "plain", "example.com/Approved")
    control_plane.wait_until_quiet()
    kubeconfig = operator_process.install(control_plane)
    assert operator.stop() == 0
    versions = {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for k in ("Deployment", "TritonModel")
                for o in api.list(k)}  # fmt: skip
    settings = {"TOOLS_IMAGE": "registry.example.com/triton-operator:2", "WATCH_NAMESPACES": api.namespace}
    with operator_process.running(kubeconfig, tmp_path, **settings) as upgraded:
        eventually(lambda: upgraded.reconciles(result="ok") >= 3, 15)
        time.sleep(1)
        now = {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for k in ("Deployment", "TritonModel")
               for o in api.list(k)}  # fmt: skip
        assert now == versions
        assert upgraded.writes() == 0, [line for line in upgraded.log.splitlines() if "applied" in line]
        # A change of the pods uses the new tools image.
        api.patch("TritonModel", "plain", {"spec": {"server": {"image": "triton:2"}}})

        def image() -> str:
            pod = api.get("Deployment", "plain")["spec"]["template"]["spec"]
            return str(pod["initContainers"][0]["image"])

        eventually(lambda: image().endswith(":2"), 10)
        assert upgraded.stop() == 0


def test_writes_the_steps_of_a_start_together(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    """The operator writes steps once per PROGRESS_SECONDS. It writes the first status and Ready at once."""
    steps = {
        "Scheduling": gen.condition("PodScheduled", "False"),
        "FetchingRepository": gen.state(names.CONTAINER_FETCH, state={"running": {}}),
        "CheckingRepository": gen.state(names.CONTAINER_CHECK, state={"running": {}}),
        "LoadingModels": gen.state(names.CONTAINER_SERVER, started=False, state={"running": {}}),
    }
    kubeconfig = operator_process.install(control_plane)

    def written() -> float:
        return sum(n for labels, n in control_plane.writes().items()
                   if 'resource="tritonmodels"' in labels and 'subresource="status"' in labels)  # fmt: skip

    # Alone in its namespace: at the start it writes the statuses of the other tests' TritonModels.
    settings = {"PROGRESS_SECONDS": "20", "WATCH_NAMESPACES": api.namespace}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        before, began = written(), time.monotonic()
        make(api)
        reason = lambda: condition(api.get("TritonModel", gen.NAME), "Ready").get("reason")  # noqa: E731
        eventually(lambda: reason() == "Creating", 15)
        # The API server counts a write after it has answered it.
        eventually(lambda: written() == before + 1, 5, written)
        passes = operator.reconciles(result="ok")
        for step in steps.values():
            add_pod(api, step, gen.not_ready)
            eventually(lambda n=passes: operator.reconciles(result="ok") > n, 15)
            passes = operator.reconciles(result="ok")
        if time.monotonic() - began > 20:
            pytest.skip("the machine is too busy: the steps took longer than PROGRESS_SECONDS")
        assert (reason(), written()) == ("Creating", before + 1)
        # The last step is written once, without a further event.
        eventually(lambda: reason() == "LoadingModels", 30)
        eventually(lambda: written() == before + 2, 5, written)
        # Ready is written at once.
        add_pod(api, gen.put("status.podIP", ""))
        eventually(lambda: condition(api.get("TritonModel", gen.NAME), "Ready").get("status") == "True", 15)
        eventually(lambda: written() == before + 3, 5, written)
        control_plane.wait_until_quiet()
        assert written() == before + 3
        assert operator.stop() == 0
