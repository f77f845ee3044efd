"""The krew plugin: an archive with the project's wheel, the lock of its packages, and a launcher; and its manifest."""

from __future__ import annotations

from pathlib import Path

import yaml

from triton_operator.api.plain_yaml import PlainDumper

from . import archive, sums
from .project import HOME, ROOT, Object

LAUNCHER, LOCK = "kubectl-triton", "requirements.txt"
_DESCRIPTION = """\
Checks model repositories, renders TritonModels without a cluster, shows their status, rollouts, load and alerts,
explains alerts, lists, loads and unloads the models of running Triton servers, and measures what one server handles.
"""
_CAVEATS = """\
Needs Python 3.11 or later with the module venv (Debian: python3-venv). The first run installs the plugin's packages
into a venv in the plugin's folder: about 50 MB, by pip, checked by their hashes, from the index that pip is set to.
"""


def write(folder: Path, version: str, wheel: Path, time: int) -> None:
    """Writes the archive of the plugin and krew's manifest into the folder."""
    target = folder / f"kubectl-triton-{version}.tar.gz"
    files = {
        LAUNCHER: (ROOT / "hack" / "release" / "launcher.py").read_bytes(),
        LOCK: (ROOT / "requirements" / "plugin.lock").read_bytes(),
        wheel.name: wheel.read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    archive.write(target, files, time, executable=frozenset({LAUNCHER}))
    text = yaml.dump(
        manifest(version, target.name, sums.digest(target)), Dumper=PlainDumper, sort_keys=False, width=110
    )
    (folder / "triton.yaml").write_text(text)


def manifest(version: str, file: str, digest: str) -> Object:
    """Returns krew's manifest for an archive of this name and SHA-256."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "triton"},
        "spec": {
            "version": f"v{version}",
            "homepage": HOME,
            "shortDescription": "Serve models with the Triton operator",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": f"{HOME}/releases/download/v{version}/{file}",
                    "sha256": digest,
                    "bin": LAUNCHER,
                }
            ],
        },
    }
