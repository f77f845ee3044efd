"""etcd, kube-apiserver and kube-controller-manager: control planes without nodes, for the tests."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from hack.world import settings
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe

from . import go, kubernetes

FOLDER = settings.control_plane(settings.KUBERNETES)
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "etcd")


def _build(job: Job) -> None:
    kubernetes.build(job, ("kube-apiserver", "kube-controller-manager"), FOLDER)
    go.build(job, "kubernetes", {"etcd": "go.etcd.io/etcd/server/v3"}, FOLDER)


def _build_release(job: Job, version: str) -> None:
    """Compiles another release, and takes the etcd of the tests' own."""
    folder = settings.control_plane(version)
    kubernetes.build(job, ("kube-apiserver", "kube-controller-manager", "kube-scheduler"), folder, version)
    shutil.copy2(FOLDER / "etcd", folder / "etcd")


def _download(job: Job) -> None:
    _download_programs(job, settings.KUBERNETES, FOLDER, "kube-controller-manager")


def _download_release(job: Job, version: str) -> None:
    folder = settings.control_plane(version)
    # On Linux, kube-apiserver of this patch version replaces that of controller-tools.
    _download_programs(job, version, folder, "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def _download_programs(job: Job, release: str, target: Path, *others: str) -> None:
    """Downloads etcd and kube-apiserver from controller-tools, and other programs from Kubernetes."""
    # These tarballs follow Kubernetes' minor versions, with patch version 0.
    version = f"{release.rpartition('.')[0]}.0"
    system, architecture = settings.system(), settings.architecture()
    url = (
        "https://github.com/kubernetes-sigs/controller-tools/releases/download/"
        f"envtest-{version}/envtest-{version}-{system}-{architecture}.tar.gz"
    )
    target.mkdir(parents=True, exist_ok=True)
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
            (folder / name).rename(target / name)
    for name in others if system == "linux" else ():
        url = f"https://dl.k8s.io/release/{release}/bin/{system}/{architecture}/{name}"
        job.download(url, target / name, f"{url}.sha256")
        (target / name).chmod(0o755)


def release(version: str) -> str:
    """Returns the name of the part with the control plane of a release."""
    return "control-plane" if version == settings.KUBERNETES else f"control-plane-{version}"


def _release(version: str) -> Part:
    folder = settings.control_plane(version)
    return Part(
        release(version), "a control plane of another version, with kube-scheduler", version,
        registry=Recipe(
            made_from="release downloads", make=lambda job: _download_release(job, version), seconds=20, megabytes=300,
        ),
        packages=Recipe(
            made_from="Go module `k8s.io/kubernetes`", make=lambda job: _build_release(job, version), seconds=240,
            megabytes=300, needs=("go", "control-plane"), compiles=True,
        ),
        present=lambda: all((folder / name).exists() for name in ("kube-apiserver", "etcd")),
    )  # fmt: skip


_RELEASES = sorted({settings.SUPPORTED[0], settings.SUPPORTED[-1], *settings.COMPARED})
PARTS = [
    go.programs(
        "control-plane", "etcd, kube-apiserver and kube-controller-manager, without nodes", settings.KUBERNETES,
        make=_build, made_from="Go modules `k8s.io/kubernetes` and `go.etcd.io/etcd`", seconds=180, module="kubernetes",
        files=tuple(FOLDER / name for name in _PROGRAMS), megabytes=230,
        registry=Recipe(made_from="release downloads", make=_download, seconds=15, megabytes=230),
    ),
    *(_release(version) for version in _RELEASES if version != settings.KUBERNETES),
]  # fmt: skip
