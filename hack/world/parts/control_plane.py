"""etcd, kube-apiserver and kube-controller-manager: a control plane without nodes, for the tests."""

from __future__ import annotations

import tarfile

from hack.world import settings
from hack.world.job import FailedError, Job
from hack.world.part import Recipe

from . import go

FOLDER = settings.HOME / "control-plane"
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "etcd")
_VERSION = "k8s.io/component-base/version"
# kubeadm and kubectl read their version from these variables.
VERSION_VARIABLES = {
    f"{_VERSION}.gitVersion": settings.KUBERNETES,
    f"{_VERSION}.gitMajor": "1",
    f"{_VERSION}.gitMinor": settings.KUBERNETES.split(".")[1],
    f"{_VERSION}.gitTreeState": "clean",
}


def _build(job: Job) -> None:
    programs = {name: f"k8s.io/kubernetes/cmd/{name}" for name in _PROGRAMS if name != "etcd"}
    go.build(job, "kubernetes", programs, FOLDER, variables=VERSION_VARIABLES)
    go.build(job, "kubernetes", {"etcd": "go.etcd.io/etcd/server/v3"}, FOLDER)


def _download(job: Job) -> None:
    """Downloads etcd and kube-apiserver from controller-tools, and kube-controller-manager from Kubernetes."""
    # These tarballs follow Kubernetes' minor versions, with patch version 0.
    version = f"{settings.KUBERNETES.rpartition('.')[0]}.0"
    system, architecture = settings.system(), settings.architecture()
    url = (
        "https://github.com/kubernetes-sigs/controller-tools/releases/download/"
        f"envtest-{version}/envtest-{version}-{system}-{architecture}.tar.gz"
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    with job.folder() as folder:
        archive = folder / "envtest.tar.gz"
        job.download(url, archive, f"{url}.sha512")
        with tarfile.open(archive) as content:
            for member in content.getmembers():
                name = member.name.rpartition("/")[2]
                if member.isfile() and name in ("etcd", "kube-apiserver"):
                    member.name = name
                    content.extract(member, folder)
                    (folder / name).chmod(0o755)
        for name in ("etcd", "kube-apiserver"):
            if not (folder / name).exists():
                raise FailedError(f"{url} contains no {name}")
            (folder / name).rename(FOLDER / name)
    if system == "linux":
        url = f"https://dl.k8s.io/release/{settings.KUBERNETES}/bin/{system}/{architecture}/kube-controller-manager"
        job.download(url, FOLDER / "kube-controller-manager", f"{url}.sha256")
        (FOLDER / "kube-controller-manager").chmod(0o755)


PARTS = [
    go.programs(
        "control-plane", "etcd, kube-apiserver and kube-controller-manager, without nodes", settings.KUBERNETES,
        make=_build, made_from="Go modules `k8s.io/kubernetes` and `go.etcd.io/etcd`", seconds=180, module="kubernetes",
        files=tuple(FOLDER / name for name in _PROGRAMS), megabytes=230,
        registry=Recipe(made_from="release downloads", make=_download, seconds=15, megabytes=230),
    )
]  # fmt: skip
