"""Runs Helm, and compares what the charts render with the kustomize manifests."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

import yaml

from hack.world import settings

from .api import Object

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "charts" / "triton-operator"
CRDS = ROOT / "charts" / "triton-operator-crds"
NAMESPACE = "triton-operator"
Key = tuple[str, str, str]
# The loader in C takes a tenth of the time for the CRD.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class HelmError(Exception):
    """Helm failed. The message is its standard error."""


def run(*arguments: str | Path, kubeconfig: Path | None = None, values: str = "") -> str:
    """Runs helm and returns its standard output. Raises HelmError.

    - `values`: a values file for `--values=-`
    """
    with tempfile.TemporaryDirectory() as home:
        homes = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        config = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {"KUBECONFIG": f"{home}/none"}
        process = subprocess.run(
            ["helm", *map(str, arguments), *(["--values=-"] if values else [])],
            input=values, capture_output=True, text=True, check=False, timeout=600,
            env={**os.environ, "PATH": settings.search_path(), **homes, **config},
        )  # fmt: skip
    if process.returncode:
        raise HelmError(f"helm {' '.join(map(str, arguments))}: {process.stderr}")
    return process.stdout


def template(chart: Path, *options: str, namespace: str = NAMESPACE, values: str = "") -> str:
    """Returns the objects that the chart renders, as YAML."""
    return run("template", chart.name, chart, f"--namespace={namespace}", *options, values=values)


def rendered(chart: Path, *options: str, namespace: str = NAMESPACE, values: str = "") -> dict[Key, Object]:
    """Returns the objects that the chart renders."""
    return by_key(template(chart, *options, namespace=namespace, values=values))


@functools.cache
def kustomized(folder: str) -> dict[Key, Object]:
    """Returns the objects of a folder below manifests/, as `kubectl kustomize` writes them."""
    env = {**os.environ, "PATH": settings.search_path()}
    process = subprocess.run(
        ["kubectl", "kustomize", ROOT / "manifests" / folder], capture_output=True, text=True, check=True, env=env
    )
    return by_key(process.stdout)


def file(path: str) -> dict[Key, Object]:
    """Returns the objects of a file below manifests/."""
    return by_key((ROOT / "manifests" / path).read_text())


def by_key(text: str) -> dict[Key, Object]:
    """Returns the objects of the YAML by kind, namespace and name. Fails if one occurs twice."""
    objects = [obj for obj in yaml.load_all(text, _LOADER) if obj]
    index = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
    assert len(index) == len(objects), "the same object occurs twice"
    return index
