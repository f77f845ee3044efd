"""The pod of `kubectl triton validate --with-server=cluster`, and the archive that it gets."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_triton.main import main
from kubectl_triton.validate import in_cluster, server_pod, with_server
from support import gen
from triton_operator.render import Facts, render
from triton_repository_check.expected import Expected

FLAGS = ("--model-repository=/models", "--load-model=*")


def pod(spec: dict[str, Any] | None = None, *, openshift: bool = False, **expected: Any) -> dict[str, Any]:
    """Returns the pod for a TritonModel with these fields of its spec; without them for a repository alone."""
    known = Expected(**expected)
    model = server_pod.without_spec(known) if spec is None else gen.model(**spec)
    server = server_pod.Server("triton:1", FLAGS, known)
    return server_pod.manifest(model, "vision", "m-trial-1", server, 900, openshift=openshift)


def server_of(made: dict[str, Any]) -> dict[str, Any]:
    (container,) = [c for c in made["spec"]["containers"] if c["name"] == "triton"]
    return dict(container)


def test_nothing_that_the_operator_creates_selects_the_pod() -> None:
    assert list(pod({})["metadata"]["labels"]) == [server_pod.LABEL]
    assert server_pod.LABEL not in str(render(gen.model(networkPolicy={}), Facts("t:1")))


@pytest.mark.parametrize("spec", [None, {}, {"models": [{"name": "net", "config": {"max_batch_size": 4}}]}])
def test_each_mount_has_its_volume_and_the_server_cant_write_its_models(spec: dict[str, Any] | None) -> None:
    made = pod(spec)
    volumes = {volume["name"] for volume in made["spec"]["volumes"]}
    mounts = {mount["mountPath"]: mount for c in made["spec"]["containers"] for mount in c["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} <= volumes
    assert mounts["/models"]["readOnly"] is True
    assert "readOnly" not in mounts[server_pod.UPLOAD]
    assert made["spec"]["initContainers"] == []


def test_the_pod_has_what_the_servers_have() -> None:
    made = pod({
        "modelImage": {"reference": "a:1", "pullSecrets": [{"name": "registry"}]},
        "server": {
            "env": [{"name": "TOKEN", "value": "x"}],
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}},
        },
        "podTemplate": {
            "spec": {
                "nodeSelector": {"gpu": "l4"},
                "serviceAccountName": "models",
                "initContainers": [{"name": "weights", "image": "w:1"}],
                "volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "w"}}],
            }
        },
    })  # fmt: skip
    spec, server = made["spec"], server_of(made)
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "gpu": "l4"}
    assert spec["serviceAccountName"] == "models"
    assert [c["name"] for c in spec["initContainers"]] == ["weights"]
    assert "weights" in {volume["name"] for volume in spec["volumes"]}
    assert server["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "4Gi"}
    assert {"name": "TOKEN", "value": "x"} in server["env"]
    assert (server["image"], server["args"]) == ("triton:1", list(FLAGS))


def test_nothing_restarts_or_outlives_the_command() -> None:
    made = pod({})
    server = server_of(made)
    assert (made["spec"]["restartPolicy"], made["spec"]["activeDeadlineSeconds"]) == ("Never", 900)
    assert "serviceAccountName" not in made["spec"], "the TritonModel may not be in the cluster yet"
    assert server["readinessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert not {"livenessProbe", "startupProbe", "lifecycle"} & server.keys()


def test_options_win_over_the_spec() -> None:
    made = pod({"server": {"resources": {"limits": {"cpu": 4}}}}, cpus=1.5, shared_memory=1 << 20)
    assert server_of(made)["resources"]["limits"]["cpu"] == "1.5"
    (shm,) = [volume for volume in made["spec"]["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1048576"}


def test_a_repository_alone_gets_the_gpus_of_the_option() -> None:
    assert server_of(pod(gpus=2))["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert not server_of(pod())["resources"].get("limits")


def test_openshift_chooses_the_user() -> None:
    assert "runAsUser" in pod()["spec"]["securityContext"]
    assert "runAsUser" not in pod(openshift=True)["spec"]["securityContext"]


def test_the_archive_has_the_repository_without_what_no_server_can_read(tmp_path: Path) -> None:
    (tmp_path / "net/1").mkdir(parents=True)
    (tmp_path / "net/config.pbtxt").write_text("old")
    (tmp_path / "same").symlink_to("net")
    os.mkfifo(tmp_path / "net/pipe")
    with in_cluster._archive(tmp_path, {}) as (file, size), tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == ["models/net", "models/net/1", "models/net/config.pbtxt", "models/same"]
        assert archive.getmember("models/same").linkname == "net"
        assert {entry.uid for entry in archive} == {0}
        assert size % tarfile.BLOCKSIZE == 0
    with in_cluster._archive(tmp_path, {"net": "new"}) as (file, _), tarfile.open(fileobj=file) as archive:
        changed = archive.extractfile("models/net/config.pbtxt")
        assert changed is not None
        assert changed.read() == b"new"
        assert archive.getmember("models/net/1").linkname == "/.triton-operator/repository/net/1"
        assert "original/net/config.pbtxt" in archive.getnames()


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--with-server", None),
        ("--with-server=docker", None),
        ("--with-server=cluster", server_pod.Place(None, "vision", "edge")),
    ],
)
def test_without_a_value_the_server_runs_in_docker(
    option: str, place: server_pod.Place | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[with_server.Run] = []

    def findings(*arguments: Any) -> list[Any]:
        runs.append(arguments[-1])
        return []

    monkeypatch.setattr(with_server, "findings", findings)
    (tmp_path / "net").mkdir()
    (tmp_path / "net/config.pbtxt").write_text("")
    CliRunner().invoke(main, ["validate", option, str(tmp_path), "--namespace=vision", "--context=edge"])
    assert [run.place for run in runs] == [place]


def test_another_place_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "--with-server=podman", str(tmp_path)])
    assert result.exit_code == 2
    assert "'podman' is not one of 'docker', 'cluster'" in result.output


def test_a_cluster_that_isnt_there_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "absent"))
    (tmp_path / "models/net").mkdir(parents=True)
    result = CliRunner().invoke(main, ["validate", "--with-server=cluster", str(tmp_path / "models")])
    assert result.exit_code == 2
    assert result.output.startswith("Error: no usable kubeconfig: ")
