"""Folders, versions and names, from the environment and hack/versions.env."""

from __future__ import annotations

import os
import platform
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CLONE_CACHE = ROOT / ".cache"
# All clones of a user share it.
HOME = Path(
    os.environ.get("TRITON_OPERATOR_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton-operator"
)
BIN = HOME / "bin"
LOGS = HOME / "log"
STAMPS = HOME / "stamps"


def _versions() -> dict[str, str]:
    lines = (ROOT / "hack" / "versions.env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: os.environ.get(name) or value for name, _, value in pairs}


_VERSIONS = _versions()
KUBERNETES = _VERSIONS["KUBERNETES_VERSION"]
# The releases that the operator supports, oldest first.
SUPPORTED: tuple[str, ...] = runpy.run_path(str(ROOT / "operator/triton_operator/api/kubernetes_versions.py"))["TESTED"]
# The releases that `make compat` tests now.
COMPARED = tuple(os.environ.get("KUBERNETES", "").split())
KIND = _VERSIONS["KIND_VERSION"]
PROMETHEUS = _VERSIONS["PROMETHEUS_VERSION"]
NODE_IMAGE = os.environ.get("KIND_NODE_IMAGE") or f"kindest/node:{KUBERNETES}"
REGISTRY = os.environ.get("REGISTRY", "localhost:5001")
REGISTRY_NAME = os.environ.get("REGISTRY_NAME", "triton-operator-registry")

# The label of images that are built from packages; `make purge` finds them by it.
LABEL = "io.tritonoperator.world=packages"


def control_plane(version: str) -> Path:
    """Returns the folder with the control plane of a release of Kubernetes."""
    return HOME / "control-plane" if version == KUBERNETES else HOME / "control-planes" / version


def search_path() -> str:
    """Returns PATH with the folder of our programs first."""
    return os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])


def architecture() -> str:
    """Returns this machine's architecture as release files name it: amd64 or arm64."""
    names = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    machine = platform.machine()
    return names.get(machine, machine)


def system() -> str:
    """Returns the operating system: linux or darwin."""
    return platform.system().lower()
