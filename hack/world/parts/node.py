"""The kind node image: systemd, containerd, the kubelet, and the images of the control plane."""

from __future__ import annotations

import subprocess

from hack.world import docker, settings
from hack.world.job import FailedError, Job

from . import control_plane, go, kubernetes

PROGRAMS = settings.HOME / "node"
_PROGRAM_BASE = "triton-operator/world-kubernetes-base:1"
_NODE_BASE = "triton-operator/world-node-base:1"
_PAUSE = "registry.k8s.io/pause:3.10.2"
"""The sandbox image of containerd's default settings. kubeadm may name another."""
_KUBERNETES = ("kube-scheduler", "kube-proxy", "kubelet", "kubeadm")
_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONTAINERD_VERSION = "2.3.5"


def _build_containerd(job: Job) -> None:
    package = "github.com/containerd/containerd/v2"
    go.build(
        job, "kubernetes", {name: f"{package}/cmd/{name}" for name in _CONTAINERD}, PROGRAMS,
        variables={f"{package}/version.Version": _CONTAINERD_VERSION}, tags="no_btrfs,no_zfs,no_devmapper",
    )  # fmt: skip


def _build_coredns(job: Job) -> None:
    go.build(job, "kubernetes", {"coredns": "./coredns", "pause": "./pause"}, PROGRAMS)


def _build_kubernetes(job: Job) -> None:
    kubernetes.build(job, (*_KUBERNETES, "kubectl"), PROGRAMS)


def _build_image(job: Job) -> None:
    """Builds kubeadm's images and then the node image, which contains them."""
    # One image with five names: kubeadm's manifests set the command of each container.
    everything = "triton-operator/world-kubernetes:1"
    control = [control_plane.FOLDER / name for name in ("kube-apiserver", "kube-controller-manager", "etcd")]
    docker.build_folder(job, everything, "kubernetes", [*control, PROGRAMS / "kube-scheduler", PROGRAMS / "kube-proxy"])
    tags = {*_images(), _PAUSE}
    for tag in tags:
        match tag.rpartition(":")[0].rpartition("/")[2]:
            case "coredns":
                docker.build_program(job, tag, PROGRAMS / "coredns", "/coredns", 0)
            case "pause":
                docker.build_program(job, tag, PROGRAMS / "pause", "/pause", 65535)
            case _:
                job.run("docker", "tag", everything, tag)
    archive = settings.HOME / "tmp" / "kubernetes-images.tar"
    job.run("docker", "save", "-o", archive, *tags)
    try:
        programs = (*_CONTAINERD, "kubelet", "kubeadm", "kubectl")
        docker.build_folder(job, settings.NODE_IMAGE, "node", [*(PROGRAMS / name for name in programs), archive])
    finally:
        archive.unlink()
    job.run("docker", "rmi", *tags, everything)


def _images() -> list[str]:
    """Returns the images that kubeadm starts."""
    command = [str(PROGRAMS / "kubeadm"), "config", "images", "list", f"--kubernetes-version={settings.KUBERNETES}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise FailedError(f"kubeadm doesn't say which images it starts: {result.stderr}")
    return result.stdout.split()


PARTS = [
    go.programs(
        "containerd", "runs the node's containers", f"v{_CONTAINERD_VERSION}", make=_build_containerd,
        made_from="Go module `github.com/containerd/containerd`", seconds=45, module="kubernetes",
        files=tuple(PROGRAMS / name for name in _CONTAINERD), megabytes=80,
    ),
    go.programs(
        "coredns", "the cluster's DNS, and the pause container", "v1.14.2", make=_build_coredns,
        made_from="Go module `github.com/coredns/coredns`, with the plugins that kubeadm names; pause is ours",
        seconds=35, module="kubernetes", files=(PROGRAMS / "coredns", PROGRAMS / "pause"), megabytes=55,
    ),
    go.programs(
        "kubernetes", "kubelet, kubeadm, kubectl, kube-scheduler and kube-proxy", settings.KUBERNETES,
        make=_build_kubernetes,
        made_from="Go module `k8s.io/kubernetes`", seconds=75, module="kubernetes",
        files=tuple(PROGRAMS / name for name in _KUBERNETES), megabytes=360,
    ),
    docker.image(
        _PROGRAM_BASE, "tools that kube-proxy needs",
        lambda job: docker.build_folder(job, _PROGRAM_BASE, "kubernetes-base"), name="kubernetes-base",
        made_from="Debian packages", seconds=10, megabytes=30, needs=("debian-bookworm",),
        inputs=("images/kubernetes-base",), pulls=False,
    ),
    docker.image(
        _NODE_BASE, "tools of a node besides Kubernetes and containerd",
        lambda job: docker.build_folder(job, _NODE_BASE, "node-base"), name="node-base", made_from="Debian packages",
        seconds=25, megabytes=150, needs=("debian-bookworm",), inputs=("images/node-base",), pulls=False,
    ),
    docker.image(
        settings.NODE_IMAGE, "a node of the cluster", _build_image, name="node",
        made_from="the programs above, in Debian", seconds=45, megabytes=1500,
        needs=("node-base", "kubernetes-base", "control-plane", "kubernetes", "containerd", "coredns"),
        inputs=("images/node", "images/kubernetes"),
    ),
]  # fmt: skip
