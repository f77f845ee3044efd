"""The pod of `kubectl triton validate --with-server=cluster`, the archive that it gets, and when it is deleted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import kubernetes
import pytest
from click.testing import CliRunner, Result

from kubectl_triton import cluster, forward, pod_session
from kubectl_triton.main import main
from kubectl_triton.pod_session import Session
from kubectl_triton.trial import run as trial
from kubectl_triton.validate import in_cluster, server_pod, with_server
from support import gen
from triton_operator.cluster.errors import ApiError
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
    labels = {"app": "shop"}
    labelled = {"commonMetadata": {"labels": labels}, "podTemplate": {"metadata": {"labels": labels}}}
    assert list(pod({})["metadata"]["labels"]) == list(pod(labelled)["metadata"]["labels"]) == [server_pod.LABEL]
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
                "containers": [{"name": "tokens", "image": "t:1"}],
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
    assert [c["name"] for c in spec["containers"]] == ["triton", "tokens"]
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


@pytest.mark.parametrize(
    ("limits", "gpus", "set_"),
    [
        ({"cpu": 1}, 2, {"cpu": 1, "nvidia.com/gpu": 2}),
        ({"nvidia.com/gpu": 4, "memory": "1Gi"}, 1, {"nvidia.com/gpu": 1, "memory": "1Gi"}),
        ({"nvidia.com/gpu": 4}, 0, {}),
        ({"nvidia.com/mig-1g.10gb": 1}, 2, {"nvidia.com/mig-1g.10gb": 2}),
        ({"amd.com/gpu": 1, "nvidia.com/gpu": 1}, 3, {"nvidia.com/gpu": 3}),
        ({"aliyun.com/gpu-mem": 3}, None, {"aliyun.com/gpu-mem": 3}),
    ],
)
def test_the_number_of_gpus_wins_over_the_spec(limits: dict[str, Any], gpus: int | None, set_: dict[str, Any]) -> None:
    made = pod({"server": {"resources": {"limits": limits, "requests": {"cpu": 1}}}}, gpus=gpus)
    assert server_of(made)["resources"] == {"limits": set_, "requests": {"cpu": 1}}


def test_a_repository_alone_gets_the_gpus_of_the_option() -> None:
    assert server_of(pod(gpus=2))["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert not server_of(pod())["resources"].get("limits")


def test_a_repository_alone_gets_the_operators_defaults_and_the_limits_of_the_options() -> None:
    assert pod()["spec"] == pod({"server": {"resources": {"limits": {}}}})["spec"]
    made = pod(cpus=1.5, shared_memory=1 << 20)
    assert server_of(made)["resources"]["limits"] == {"cpu": "1.5"}
    assert [v["emptyDir"]["sizeLimit"] for v in made["spec"]["volumes"] if v["name"] == "shm"] == ["1048576"]


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


class Cluster:
    """A cluster whose only pod has the status of `looks`. The requests to the server do what `trial` does.

    - `connected`: namespace and context of each connection. `requests`: verb, resource and namespace of each request.
    - `created`, `deleted`: pods. `uploaded`: the names in the archive. `seconds`: the time.
    """

    def __init__(self) -> None:
        self.looks = gen.pod()
        self.trial: Callable[[], None] = lambda: None
        self.connected: list[tuple[str | None, str | None]] = []
        self.requests: list[tuple[str, str, str]] = []
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.uploaded: list[str] = []
        self.forwarded: list[tuple[Any, ...]] = []
        self.seconds = 0.0

    def connect(self, namespace: str | None, context: str | None) -> cluster.Cluster:
        self.connected.append((namespace or None, context))
        return cluster.Cluster(self, namespace or "of-context", kubernetes.client.Configuration())  # type: ignore[arg-type]

    def serves(self, _kind: Any) -> bool:
        return False

    def create(self, kind: Any, namespace: str, obj: dict[str, Any]) -> None:
        self.requests.append(("create", kind.plural, namespace))
        self.created.append(obj)

    def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any]:
        self.requests.append(("get", kind.plural, namespace))
        if name in self.deleted or [name] != [obj["metadata"]["name"] for obj in self.created]:
            raise ApiError(404, "NotFound", "not found")
        metadata = {**self.created[0]["metadata"], "uid": "1"}
        return {**self.looks, "metadata": metadata}

    def delete(self, kind: Any, namespace: str, name: str, _uid: str) -> None:
        self.requests.append(("delete", kind.plural, namespace))
        self.deleted.append(name)

    def feed(self, source: IO[bytes], size: int, _command: str, _seconds: float) -> None:
        with tarfile.open(fileobj=io.BytesIO(source.read(size))) as archive:
            self.uploaded += archive.getnames()

    @contextlib.contextmanager
    def forward(self, *arguments: Any) -> Iterator[str]:
        self.forwarded.append(arguments)
        yield "127.0.0.1:1"

    def run(self, _address: str, _plan: trial.Plan, say: trial.Say) -> list[Any]:
        say("sends requests to net")
        self.trial()
        return []

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(cluster, "connect", made.connect)
    monkeypatch.setattr(forward, "forward", made.forward)
    monkeypatch.setattr(trial, "run", made.run)
    monkeypatch.setattr(Session, "feed", lambda _, *arguments: made.feed(*arguments))
    monkeypatch.setattr(Session, "log", lambda *_: "")
    monkeypatch.setattr(Session, "run", lambda *_: "1.26.4")
    for name in ("_all_ready", "_accepts"):
        monkeypatch.setattr(in_cluster, name, lambda _: True)
    monkeypatch.setattr(pod_session, "time", SimpleNamespace(monotonic=lambda: made.seconds, sleep=made.sleep))
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "models/net/1").mkdir(parents=True)
    (tmp_path / "models/net/config.pbtxt").write_text('backend: "identity"')
    return tmp_path / "models"


def validate(target: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["validate", str(target), "--with-server=cluster", *options])


def test_standard_output_has_only_the_findings(fake: Cluster, repository: Path) -> None:
    result = validate(repository, "--format=json")
    assert json.loads(result.stdout)["models"] == ["net"], result.stderr
    (name,) = fake.deleted
    assert result.stderr.splitlines() == [
        f"uploading the repository, 0.1 MiB, to the pod {name}", "sends requests to net", f"deleted the pod {name}"
    ]  # fmt: skip


def test_the_repository_may_be_an_image_in_a_file(fake: Cluster, repository: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "layer.tar", "w") as layer:
        layer.add(repository, "models")
    (tmp_path / "manifest.json").write_text('[{"Layers": ["layer.tar"]}]')
    with tarfile.open(tmp_path / "image.tar", "w") as image:
        for name in ("manifest.json", "layer.tar"):
            image.add(tmp_path / name, name)
    validate(tmp_path / "image.tar")
    assert fake.uploaded == ["models/net", "models/net/1", "models/net/config.pbtxt"]


@pytest.mark.parametrize(
    ("options", "written", "connected", "namespace"),
    [
        (["-n", "vision"], "sound", ("vision", None), "vision"),
        ([], "sound", ("sound", None), "sound"),
        (["--context", "edge"], "", (None, "edge"), "of-context"),
    ],
)
def test_the_namespace_is_that_of_the_option_or_of_the_spec_or_of_the_context(
    options: list[str], written: str, connected: tuple[str | None, str | None], namespace: str, fake: Cluster,
    repository: Path, tmp_path: Path,
) -> None:  # fmt: skip
    spec = tmp_path / "spec.yaml"
    metadata = {"name": "m", **({"namespace": written} if written else {})}
    spec.write_text(
        json.dumps({"kind": "TritonModel", "metadata": metadata, "spec": {"modelImage": {"reference": "r"}}})
    )
    validate(repository, "--spec", str(spec), *options)
    assert fake.connected == [connected]
    assert {at for _, _, at in fake.requests} == {namespace}
    assert [arguments[0] for arguments in fake.forwarded] == [namespace]
    assert [arguments[3] for arguments in fake.forwarded] == [connected[1]]


def test_the_command_only_creates_reads_and_deletes_pods(fake: Cluster, repository: Path) -> None:
    """Role `edit` may, and its exec, port-forward and log. See in_cluster.PURPOSE."""
    validate(repository)
    assert {request[:2] for request in fake.requests} == {(verb, "pods") for verb in ("create", "get", "delete")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_pod_is_deleted_after_a_signal(number: signal.Signals, fake: Cluster, repository: Path) -> None:
    def unhandled(*_: object) -> None:
        raise AssertionError("the signal would end the command at once")

    fake.trial = lambda: os.kill(os.getpid(), number)
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else unhandled)
    try:
        result = validate(repository)
    finally:
        signal.signal(number, before)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"deleted the pod {fake.created[0]['metadata']['name']}\nError: stopped\n")


def test_the_pod_is_deleted_after_a_failure(fake: Cluster, repository: Path) -> None:
    def fails() -> None:
        raise RuntimeError("a fault of the command")

    fake.trial = fails
    assert isinstance(validate(repository).exception, RuntimeError)
    assert fake.deleted == [fake.created[0]["metadata"]["name"]]


def test_the_pod_of_a_killed_command_ends_after_an_hour_and_a_half(fake: Cluster, repository: Path) -> None:
    validate(repository)
    assert fake.created[0]["spec"]["activeDeadlineSeconds"] == pytest.approx(90 * 60, rel=0.05)


@pytest.mark.parametrize(
    ("looks", "minutes", "words"),
    [
        (gen.unschedulable("no node has a GPU"), 30, "the server isn't ready after 1800 s: Unschedulable: no node has"),
        (gen.waiting("triton", "ContainerCreating"), 30, "the server isn't ready after 1800 s: "),
        (gen.waiting("triton", "ErrImagePull", "no such image"), 2, "can't be pulled: no such image"),
    ],
)
def test_the_command_waits_for_a_node_and_an_image(
    looks: gen.Modifier, minutes: int, words: str, fake: Cluster, repository: Path
) -> None:
    fake.looks = gen.pod(looks)
    result = validate(repository)
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr
    assert fake.seconds == pytest.approx(minutes * 60, abs=2)
    assert fake.deleted == [fake.created[0]["metadata"]["name"]]


def test_the_server_image_needs_only_these_programs(tmp_path: Path) -> None:
    """The pod's commands, with a PATH that has nothing else."""
    folder, path = tmp_path / "upload", tmp_path / "bin"
    for made in (folder, path):
        made.mkdir()
    for program in ("sh", "head", "tar", "sleep"):
        (path / program).symlink_to(shutil.which(program) or "")
    (path / "tritonserver").write_text('#!/bin/sh\necho "$@"\n')
    (path / "tritonserver").chmod(0o755)

    def here(words: list[str]) -> list[str]:
        return [word.replace(server_pod.UPLOAD, str(folder)) for word in words]

    container = server_of(pod())
    env = {"PATH": str(path)}
    command = here([*container["command"], *container["args"]])
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        (tmp_path / "net").mkdir()
        with in_cluster._archive(tmp_path, {}) as (archive, size):
            feed = here(["sh", "-c", f"set -e; head -c {size} | {server_pod.UNPACK}"])
            uploaded = subprocess.run(feed, env=env, input=archive.read(), capture_output=True, check=False)
        (folder / "complete").touch()  # so that the first command ends in any case
        assert (uploaded.returncode, uploaded.stderr) == (0, b"")
        assert server.communicate(timeout=20) == (f"{' '.join(FLAGS)}\n", "")
    assert (folder / "models/net").is_dir()
