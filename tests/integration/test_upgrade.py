"""An upgrade of the operator to a version that renders different pods."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from integration.world.test_versions import SIGNAL, STOP_SIGNALS
from support import controlplane, operator_process, webhook
from support.api import Api, Object, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.people import tritonmodel
from support.released import OTHER_PODS
from triton_operator.api import kubernetes_versions
from triton_operator.api.names import ANNOTATION_POD_TEMPLATE, LABEL_KEPT
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
        eventually(lambda: all(m["status"].get("conditions") for m in api.list("TritonModel")), 60)
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


MIRROR = "mirror.example.com/"
REWRITTEN = {"example.com/images": "mirrored"}


def mirrored(deployment: Object) -> webhook.Patch:
    """Rewrites the images of a Deployment to those of a mirror, and the time that pods get to end, as policies do."""
    pod, patch = deployment["spec"]["template"]["spec"], []
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field, ())):
            at = f"/spec/template/spec/{field}/{index}"
            if not container["image"].startswith(MIRROR):
                patch.append({"op": "replace", "path": f"{at}/image", "value": MIRROR + container["image"]})
    return [*patch, {"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 77}]


def test_upgrade_restarts_no_server_whose_images_are_rewritten(
    control_plane_with_controllers: ControlPlane, tmp_path: Path
) -> None:
    plane, namespace, names = control_plane_with_controllers, "mirrored", ["model-1", "model-2"]
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": REWRITTEN}})
    api, kubeconfig = plane.api.in_namespace(namespace), operator_process.install(plane)
    with webhook.mutating(plane, tmp_path, REWRITTEN, mirrored):
        # The API server calls a new webhook after a moment.
        pod = {"containers": [{"name": "a", "image": "a"}], "terminationGracePeriodSeconds": 1}
        probe = {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"},
            "spec": {
                "selector": {"matchLabels": {"app": "probe"}},
                "template": {"metadata": {"labels": {"app": "probe"}}, "spec": pod},
            },
        }  # fmt: skip
        eventually(lambda: MIRROR in str(api.request("POST", f"{api.path('Deployment')}?dryRun=All", probe)), 60)
        with operator_process.running(kubeconfig, tmp_path) as operator:
            for name in names:
                api.create(tritonmodel(name))
            if kubernetes_versions.minor(controlplane.version()) >= STOP_SIGNALS:
                # The cluster drops a field of this one.
                names.append("model-3")
                api.create(tritonmodel("model-3", **SIGNAL))
            eventually(lambda: all(api.find("Deployment", name) for name in names), 60, lambda: operator.log[-2000:])
            plane.wait_until_quiet()
            assert operator.stop() == 0
        before = templates(api)
        assert f"{MIRROR}{operator_process.TOOLS_IMAGE}" in str(before)
        (tmp_path / "newer").mkdir()
        (tmp_path / "newer" / "sitecustomize.py").write_text(OTHER_PODS)
        path = os.pathsep.join(filter(None, [str(tmp_path / "newer"), os.environ.get("PYTHONPATH")]))
        with operator_process.running(
            kubeconfig, tmp_path, PYTHONPATH=path, TOOLS_IMAGE="registry.example.com/triton-operator:2"
        ) as operator:
            eventually(lambda: count_newer_templates(api) == len(names), 60, lambda: operator.log[-2000:])
            api.patch("TritonModel", names[0], {"spec": {"replicas": 3}})
            eventually(lambda: api.get("Deployment", names[0])["spec"]["replicas"] == 3, 10)
            plane.wait_until_quiet()
            assert templates(api) == before
            # A change of the spec takes the new template and the new image, through the mirror.
            api.patch("TritonModel", names[1], {"spec": {"server": {"image": "triton:2"}}})
            eventually(lambda: has_newer_template(api, names[1]), 10)
            assert f"{MIRROR}registry.example.com/triton-operator:2" in str(templates(api)[names[1]])
            assert operator.stop() == 0


def test_a_writer_of_the_status_cannot_set_the_label(api: Api) -> None:
    pod = {"containers": [{"name": "a", "image": "a"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
    forged = {"metadata": {"labels": {LABEL_KEPT: "x"}, "annotations": {ANNOTATION_POD_TEMPLATE: "x"}}}
    metadata = api.patch("Deployment", "a", forged, "status")["metadata"]
    assert (metadata.get("labels", {}), metadata["annotations"]) == ({}, forged["metadata"]["annotations"])


FORMER_IMAGE, IMAGE = "nvcr.io/nvidia/tritonserver:23.01-py3", str(TritonModelSpec.model_fields["server"].default.image)
SPECS: dict[str, dict[str, object]] = {
    "default": {},
    "beside": {"logVerbosity": 1},
    "former": {"image": FORMER_IMAGE},
    "newer": {"image": IMAGE},
    "other": {"image": "triton:1"},
}
"""The server of each TritonModel."""


def former_version(folder: Path, text: str = IMAGE, former: str = FORMER_IMAGE) -> str:
    """Makes an operator with other pods, and with `former` for `text` in its types. Returns its PYTHONPATH.

    By default the server image has another default.
    """
    sources = ROOT / "operator" / "triton_operator"
    shutil.copytree(sources, folder / "triton_operator", ignore=shutil.ignore_patterns("__pycache__"))
    types = folder / "triton_operator" / "api" / "types.py"
    assert text in types.read_text()
    types.write_text(types.read_text().replace(text, former))
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
            eventually(lambda: all(m["status"].get("conditions") for m in api.list("TritonModel")), 60)
            assert operator.stop() == 0
        assert api.get("TritonModel", "default")["spec"]["server"]["image"] == FORMER_IMAGE
        plane.install_crds()
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=later) as operator:
            eventually(lambda: count_newer_templates(api) == len(SPECS), 60, lambda: (templates(api), operator.log))
            assert templates(api) == before
            api.create(tritonmodel("created"))
            eventually(lambda: "created" in templates(api), 60, lambda: operator.log)
            eventually(lambda: api.get("TritonModel", "created")["status"].get("conditions"), 60)
            assert operator.stop() == 0
        before = templates(api)
        assert IMAGE in str(before["created"])
        plane.install_crds(lambda text: text.replace(IMAGE, FORMER_IMAGE))
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=former) as operator:
            # The former version finds its own pods again, except for the one that it never had.
            eventually(lambda: count_newer_templates(api) == 1, 60, lambda: (templates(api), operator.log))
            assert templates(api) == before
            assert operator.stop() == 0


def test_servers_run_on_with_what_a_new_tritonmodel_may_not_have(tmp_path: Path) -> None:
    """This version refuses an argument that the former one accepted."""
    former = former_version(tmp_path / "former", '"log-verbose",', "")
    with controlplane.running() as plane:
        api = plane.api
        plane.install_crds(lambda text: text.replace("--log-verbose", "--former"))
        kubeconfig = operator_process.install(plane)
        with operator_process.running(kubeconfig, tmp_path, PYTHONPATH=former) as operator:
            api.create(tritonmodel("a", server={"args": ["--log-verbose=1"]}, replicas=1))
            before = eventually(lambda: templates(api).get("a"), 60, lambda: operator.log)
            eventually(lambda: api.get("TritonModel", "a")["status"].get("conditions"), 60)
            assert operator.stop() == 0
        plane.install_crds()
        with operator_process.running(kubeconfig, tmp_path) as operator:

            def progressing(words: str) -> Object | None:
                reported = condition(api.get("TritonModel", "a"), "Progressing")
                return reported if words in reported.get("message", "") else None

            reported = eventually(
                lambda: progressing("server.args"), 60, lambda: (operator.log, api.list("TritonModel"))
            )
            assert "spec.server.args[0]: --log-verbose: args has a flag" in reported["message"]
            assert reported["reason"] != "SpecInvalid"
            # What drifts is corrected, and the number of servers changes.
            uid = api.get("Service", "a")["metadata"]["uid"]
            api.delete("Service", "a")
            eventually(lambda: (now := api.find("Service", "a")) and now["metadata"]["uid"] != uid, 30)
            api.patch("TritonModel", "a", {"spec": {"replicas": 2}})
            eventually(lambda: api.get("Deployment", "a")["spec"]["replicas"] == 2, 30)
            # A change of the servers is refused with its reason.
            api.patch("TritonModel", "a", {"spec": {"entrypoint": "other"}})
            reported = eventually(lambda: progressing("can't be read"), 30, lambda: operator.log)
            assert "spec.server.args[0]: --log-verbose: args has a flag" in reported["message"]
            assert templates(api)["a"] == before
            api.patch("TritonModel", "a", {"spec": {"server": {"args": []}}})
            eventually(lambda: templates(api)["a"] != before, 30, lambda: operator.log)
            eventually(lambda: progressing("waiting"), 30)
            assert operator.stop() == 0
