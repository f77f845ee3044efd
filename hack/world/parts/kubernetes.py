"""Compiles programs of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from hack.world import settings
from hack.world.job import Job

from . import go

_MODULE = "k8s.io/kubernetes"
_VERSION = "k8s.io/component-base/version"


def build(job: Job, programs: Iterable[str], folder: Path, version: str = settings.KUBERNETES) -> None:
    """Compiles these programs of a release into the folder."""
    packages = {name: f"{_MODULE}/cmd/{name}" for name in programs}
    # They read their version from these variables.
    variables = {
        f"{_VERSION}.gitVersion": version,
        f"{_VERSION}.gitMajor": "1",
        f"{_VERSION}.gitMinor": version.split(".")[1],
        f"{_VERSION}.gitTreeState": "clean",
    }
    if f"\t{_MODULE} {version} " in (settings.HERE / "go/kubernetes/go.mod").read_text():
        go.build(job, "kubernetes", packages, folder, variables=variables)
        return
    with job.folder() as module:
        (module / "go.mod").write_text(_module(job, version))
        go.build(job, module, packages, folder, variables=variables)


def _module(job: Job, version: str) -> str:
    """Returns the go.mod of a module that needs only this release, with the modules that belong to it."""
    lines = go.module_file(job, _MODULE, version).splitlines()
    staged = [match[1] for line in lines if (match := re.match(r"\s*(k8s\.io/\S+) => \./staging/", line))]
    replaced = "".join(f"replace {name} => {name} v0{version.removeprefix('v1')}\n" for name in staged)
    return f"module release\n\ngo 1.22\n\nrequire {_MODULE} {version}\n{replaced}"
