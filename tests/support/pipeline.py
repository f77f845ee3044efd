"""Runs the example pipeline of examples/commit-to-live as a CI would: with the account of the pipeline."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.world import settings

from .cluster import ROOT, Namespace

EXAMPLE = ROOT / "examples" / "commit-to-live"
ACCOUNT = "model-deployer"
_LABEL = "--label=io.tritonoperator.world=clone"
"""The label of the tests' images, for `make purge`."""


@dataclass(frozen=True)
class Pipeline:
    """The script, for one namespace."""

    namespace: Namespace
    kubeconfig: Path
    image: str

    @classmethod
    def of(cls, namespace: Namespace, folder: Path) -> Pipeline:
        """Creates the account of the pipeline and writes its kubeconfig into `folder`."""
        namespace.kubectl("apply", "-f", str(EXAMPLE / "deployer.yaml"))
        token = namespace.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()
        config = json.loads(namespace.cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        config["users"] = [{"name": ACCOUNT, "user": {"token": token}}]
        config["contexts"][0]["context"]["user"] = ACCOUNT
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        # Not the name of an image that other tests push.
        registry = f"localhost:{os.environ.get('REGISTRY_PORT', '5001')}"
        return cls(namespace, path, f"{registry}/triton-operator/pipeline")

    def run(self, model: str, context: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the script for the folder with the Dockerfile."""
        path = f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}"
        env = {
            **os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), "NAMESPACE": self.namespace.name,
            "MODEL": model, "IMAGE": self.image, "BUILD_OPTIONS": _LABEL,
            "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0"), **variables,
        }  # fmt: skip
        command = ["sh", EXAMPLE / "deploy.sh", context]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
