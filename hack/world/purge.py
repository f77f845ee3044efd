"""Removes everything that the Makefile's targets installed on this machine outside the clone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from . import docker, ledger, settings
from .job import FailedError, Job
from .parts import docker_daemon
from .progress import say

_STOP_SECONDS = 30
# Folders that remain after Docker's and containerd's packages are purged.
_DOCKER_FOLDERS = [
    Path(path)
    for path in (
        "/var/lib/docker", "/var/lib/containerd", "/etc/docker", "/etc/containerd", "/opt/containerd", "/run/docker",
        "/run/containerd",
    )
]  # fmt: skip


def purge() -> None:
    """Removes what this project installed and prints each object. Keeps everything else."""
    if _docker_answers():
        _containers()
        _images()
        _network()
    elif shutil.which("docker"):
        say("Docker doesn't answer: keeping its containers and images, and the Debian packages")
    packages = ledger.names("apt")
    if os.geteuid() == 0 and (docker.answers() or not shutil.which("docker")) and _debian_packages():
        packages = []
    if settings.HOME.exists():
        say(f"removing {settings.HOME} ({_megabytes(settings.HOME)} MiB)")
        shutil.rmtree(settings.HOME)
    for name in packages:  # for the next purge
        ledger.write("apt", name)
    say("purge: done; only the clone is left (make clean removes its caches)")


def _docker_answers() -> bool:
    """Whether Docker answers. Starts a Docker that this project installed, because only a running one lists images."""
    if not docker.answers() and "docker.io" in ledger.names("apt") and os.geteuid() == 0:
        try:
            docker_daemon.start(Job("docker"))
        except FailedError as error:
            say(str(error))
    return docker.answers()


def _containers() -> None:
    """Removes the nodes of the recorded clusters, and the recorded containers."""
    nodes = ledger.names("cluster") or [os.environ.get("CLUSTER", "triton-operator")]
    for cluster in nodes:
        ids = docker.output("ps", "-aq", "--filter", f"label=io.x-k8s.kind.cluster={cluster}")
        for container in (ids or "").split():
            say(f"removing the node {container} of the kind cluster {cluster}")
            docker.output("rm", "--force", "--volumes", container)
    for name in [*ledger.names("container"), settings.REGISTRY_NAME]:
        if docker.output("container", "inspect", name) is not None:
            say(f"removing the container {name}")
            docker.output("rm", "--force", "--volumes", name)


def _images() -> None:
    for tag in _our_images():
        if docker.has(tag):
            say(f"removing the image {tag}")
            docker.output("rmi", "--force", tag)
    # Untagged images of our builds.
    docker.output("image", "prune", "--force", "--filter", f"label={settings.LABEL.partition('=')[0]}")


def _our_images() -> Iterator[str]:
    """Yields the images of this project, those built from packages, and those that hack/world pulled."""
    listed = (docker.output("image", "ls", "--format", "{{.Repository}}:{{.Tag}}") or "").splitlines()
    yield from (
        tag for tag in listed if tag.startswith(("localhost:", "triton-operator/")) and "triton-operator/" in tag
    )
    built = (
        docker.output("image", "ls", "--filter", f"label={settings.LABEL}", "--format", "{{.Repository}}:{{.Tag}}")
        or ""
    )
    yield from (tag for tag in built.splitlines() if "<none>" not in tag)
    yield from ledger.names("image")


def _network() -> None:
    """Removes kind's network, unless another cluster uses it."""
    if "kind" in ledger.names("network") and docker.output("network", "rm", "kind") is not None:
        say("removing Docker's network kind")


def _debian_packages() -> bool:
    """Removes the recorded Debian packages unless other packages need them. Returns whether it removed all."""
    ours = set(ledger.names("apt"))
    if not ours:
        return True
    simulated = subprocess.run(
        ["apt-get", "--simulate", "purge", *sorted(ours)], capture_output=True, text=True, check=False
    ).stdout
    removed = {line.split()[1] for line in simulated.splitlines() if line.startswith(("Remv", "Purg"))}
    if removed - ours:
        say(f"keeping the Debian packages {' '.join(sorted(ours))}: {' '.join(sorted(removed - ours))} need them")
        return False
    docker_is_ours = "docker.io" in ours
    if docker_is_ours and _others_use_docker():
        say("keeping Docker and its Debian packages: it has images or containers that this project didn't create")
        return False
    if docker_is_ours:
        _stop_docker()
    say(f"removing the Debian packages {' '.join(sorted(ours))}")
    result = subprocess.run(
        ["apt-get", "purge", "-y", "-qq", *sorted(ours)], capture_output=True, text=True, check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    if result.returncode:
        say(f"apt-get purge failed: {result.stderr.strip().splitlines()[-1:]}")
        return False
    if docker_is_ours:
        for folder in _DOCKER_FOLDERS:
            if folder.exists():
                say(f"removing {folder}")
                shutil.rmtree(folder, ignore_errors=True)
    return True


def _others_use_docker() -> bool:
    """Whether Docker has other containers or tagged images, after ours are removed."""
    return bool(docker.output("ps", "-aq") or docker.output("image", "ls", "-q", "--filter", "dangling=false"))


def _stop_docker() -> None:
    if Path("/run/systemd/system").exists():
        subprocess.run(["systemctl", "stop", "docker.socket", "docker"], check=False)
        return
    pid_file = Path("/var/run/docker.pid")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        say("stopping Docker")
        os.kill(pid, signal.SIGTERM)
        for _ in range(_STOP_SECONDS * 10):
            os.kill(pid, 0)
            time.sleep(0.1)


def _megabytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) // 2**20
