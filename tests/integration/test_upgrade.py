"""An upgrade of the operator to a version that renders different pods."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support import controlplane, operator_process
from support.api import Api, eventually
from support.controlplane import ROOT, ControlPlane
from support.people import tritonmodel
from support.released import OTHER_PODS
from triton_operator.api.types import TritonModelSpec

pytestmark = pytest.mark.integration

COUNT = 50


def templates(api: Api) -> dict[str, dict[str, object]]:
    return {d["metadata"]["name"]: d["spec"]["template"] for d in api.list("Deployment")}


def count_newer_templates(api: Api) -> int:
    """Returns the number of TritonModels whose status reports a newer pod template."""
    return sum(bool(m.get("status", {}).get("newerTemplate")) for m in api.list("TritonModel"))


def has_newer_template(api: Api, name: str) -> bool:
    return bool(api.get("Deployment", name)["spec"]["template"]["spec"].get("hostname") == "newer")


def test_upgrade_of_the_operator_restarts_no_server(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = operator_process.install(control_plane)
    names = [f"model-{n}" for n in range(COUNT)]
    with operator_process.running(kubeconfig, tmp_path) as operator:
        for name in names:
            api.create(tritonmodel(name))
        eventually(lambda: len(templates(api)) == COUNT, 60)
        eventually(lambda: all("status" in m for m in api.list("TritonModel")), 60)
        assert operator.stop() == 0
    before = templates(api)
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "sitecustomize.py").write_text(OTHER_PODS)
    path = os.pathsep.join(filter(None, [str(tmp_path / "newer"), os.environ.get("PYTHONPATH")]))
    tools = "registry.example.com/triton-operator:2"
    with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=path, TOOLS_IMAGE=tools) as operator:
        eventually(lambda: count_newer_templates(api) == COUNT, 60, lambda: operator.log[-2000:])
        assert templates(api) == before
        # A change that doesn't concern the pods keeps the old template.
        api.patch("TritonModel", names[0], {"spec": {"replicas": 3}})
        eventually(lambda: api.get("Deployment", names[0])["spec"]["replicas"] == 3, 10)
        assert templates(api) == before
        # Drift correction restores the old template.
        broken = {"spec": {"template": {"spec": {"enableServiceLinks": True}}}}
        api.patch("Deployment", names[1], broken)
        eventually(lambda: templates(api)[names[1]] == before[names[1]], 10)
        # Only a change of the pods or a requested restart applies the newer template.
        api.patch("TritonModel", names[2], {"spec": {"server": {"image": "triton:2"}}})
        api.patch("TritonModel", names[3], {"spec": {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}}})
        eventually(lambda: has_newer_template(api, names[2]) and has_newer_template(api, names[3]), 10)
        eventually(lambda: count_newer_templates(api) == COUNT - 2, 10)
        assert [name for name in names if has_newer_template(api, name)] == [names[2], names[3]]
        assert tools in str(templates(api)[names[3]])
        # A new TritonModel uses the newer template.
        api.create(tritonmodel("another"))
        eventually(lambda: api.find("Deployment", "another") and has_newer_template(api, "another"), 10)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


FORMER_IMAGE, IMAGE = "nvcr.io/nvidia/tritonserver:23.01-py3", str(TritonModelSpec.model_fields["server"].default.image)
SPECS: dict[str, dict[str, object]] = {
    "default": {},
    "beside": {"logVerbosity": 1},
    "former": {"image": FORMER_IMAGE},
    "newer": {"image": IMAGE},
    "other": {"image": "triton:1"},
}
"""The server of each TritonModel."""


def former_version(folder: Path) -> str:
    """Makes an operator with another default of the server image and other pods. Returns its PYTHONPATH."""
    sources = ROOT / "operator" / "triton_operator"
    shutil.copytree(sources, folder / "triton_operator", ignore=shutil.ignore_patterns("__pycache__"))
    types = folder / "triton_operator" / "api" / "types.py"
    types.write_text(types.read_text().replace(IMAGE, FORMER_IMAGE))
    (folder / "sitecustomize.py").write_text(OTHER_PODS)
    return str(folder)


def later_version(folder: Path) -> str:
    """Makes this version, with the first default in its table. Returns its PYTHONPATH."""
    folder.mkdir()
    table = f"kept_template.FIRST_DEFAULTS = {{('server', 'image'): {FORMER_IMAGE!r}}}\n"
    (folder / "sitecustomize.py").write_text(f"from triton_operator.render import kept_template\n{table}")
    return str(folder)


def test_a_changed_default_restarts_no_server(tmp_path: Path) -> None:
    """The API server has stored the former default, and the two versions render different pods."""
    former, later = former_version(tmp_path / "former"), later_version(tmp_path / "later")
    with controlplane.running() as plane:
        api = plane.api
        plane.install_crds(lambda text: text.replace(IMAGE, FORMER_IMAGE))
        kubeconfig = operator_process.install(plane)
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=former) as operator:
            for name, server in SPECS.items():
                api.create(tritonmodel(name, server=server))
            before = eventually(lambda: len(now := templates(api)) == len(SPECS) and now, 60, lambda: operator.log)
            eventually(lambda: all("status" in m for m in api.list("TritonModel")), 60)
            assert operator.stop() == 0
        assert api.get("TritonModel", "default")["spec"]["server"]["image"] == FORMER_IMAGE
        plane.install_crds()
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=later) as operator:
            eventually(lambda: count_newer_templates(api) == len(SPECS), 60, lambda: (templates(api), operator.log))
            assert templates(api) == before
            api.create(tritonmodel("created"))
            eventually(lambda: "created" in templates(api), 60, lambda: operator.log)
            eventually(lambda: "status" in api.get("TritonModel", "created"), 60)
            assert operator.stop() == 0
        before = templates(api)
        assert IMAGE in str(before["created"])
        plane.install_crds(lambda text: text.replace(IMAGE, FORMER_IMAGE))
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=former) as operator:
            # The former version finds its own pods again, except for the one that it never had.
            eventually(lambda: count_newer_templates(api) == 1, 60, lambda: (templates(api), operator.log))
            assert templates(api) == before
            assert operator.stop() == 0
