"""Runs the example pipeline of examples/commit-to-live as a CI would: with the account of the pipeline."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.world import settings
from kubectl_triton.validate.tritonserver import IMAGE

from .cluster import ROOT, Namespace

EXAMPLE = ROOT / "examples" / "commit-to-live"
ACCOUNT, TRIALS = "model-deployer", "model-trials"
_LABEL = "--label=io.tritonoperator.world=clone"
"""The label of the tests' images, for `make purge`."""


@dataclass(frozen=True)
class Pipeline:
    """The script, for one namespace. `trials`: the kubeconfig of the account that may create pods."""

    namespace: Namespace
    kubeconfig: Path
    trials: Path
    image: str

    @classmethod
    def of(cls, namespace: Namespace, folder: Path) -> Pipeline:
        """Creates the accounts of the pipeline and writes their kubeconfigs into `folder`."""
        path = _account(namespace, "deployer.yaml", ACCOUNT, "deployer", folder)
        trials = _account(namespace, "trials.yaml", TRIALS, "trials", folder)
        # Not the name of an image that other tests push.
        registry = f"localhost:{os.environ.get('REGISTRY_PORT', '5001')}"
        return cls(namespace, path, trials, f"{registry}/triton-operator/pipeline")

    def run(self, model: str, context: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the script for the folder with the Dockerfile."""
        env = {"KUBECONFIG": str(self.kubeconfig), **self._own(model), **variables}
        return _run(["sh", EXAMPLE / "deploy.sh", context], env)

    def run_github(self, model: str, checkout: Path) -> subprocess.CompletedProcess[str]:
        """Runs the step `Deploy` of the workflow for GitHub, for this model and image, as GitHub's runner does."""
        [job] = _workflow("github-actions.yaml")["jobs"].values()
        [step] = (step for step in job["steps"] if step.get("name") == "Deploy")
        secrets = {"KUBECONFIG_OF_DEPLOYER": self.kubeconfig.read_text()}
        env = {
            name: re.sub(r"\$\{\{ secrets\.(\w+) \}\}", lambda m: secrets[m[1]], v) for name, v in step["env"].items()
        }
        env |= {"RUNNER_TEMP": str(self.kubeconfig.parent), **self._own(model)}
        return _run(["bash", "-e", "-c", step["run"]], env, checkout)

    def run_gitlab(self, model: str, checkout: Path) -> subprocess.CompletedProcess[str]:
        """Runs the script of the job for GitLab, for this model and image, as GitLab's runner does without bash.

        The variables that begin with DOCKER are for the service of GitLab's runner.
        """
        job = _workflow("gitlab-ci.yaml")["deploy-model"]
        registry, _, _ = self.image.partition("/")
        predefined = {
            "CI_REGISTRY": registry, "CI_REGISTRY_IMAGE": self.image, "CI_REGISTRY_USER": "ci",
            "CI_REGISTRY_PASSWORD": "secret", "CI_COMMIT_SHORT_SHA": "0a1b2c3d",
            "KUBECONFIG_OF_DEPLOYER": str(self.kubeconfig), "KUBECONFIG_OF_TRIALS": str(self.trials),
        }  # fmt: skip
        variables = {name: value for name, value in job["variables"].items() if not name.startswith("DOCKER")}
        env = {name: string.Template(value).substitute(predefined) for name, value in variables.items()}
        # The nodes of the tests can't pull from NVIDIA's registry.
        env["VALIDATE_OPTIONS"] = env["VALIDATE_OPTIONS"].replace(IMAGE, self.namespace.cluster.server_image)
        env |= {"DOCKER_CONFIG": str(self.kubeconfig.parent), **predefined, **self._own(model)}
        return _run(["sh", "-e", "-c", "\n".join(job["script"])], env, checkout)

    def _own(self, model: str) -> dict[str, str]:
        """Returns the variables that a user changes."""
        return {"MODEL": model, "NAMESPACE": self.namespace.name, "IMAGE": self.image}


def _account(namespace: Namespace, file: str, account: str, context: str, folder: Path) -> Path:
    """Creates the account in `file`, and returns a new kubeconfig of it, with this context."""
    namespace.kubectl("apply", "-f", str(EXAMPLE / file))
    token = namespace.kubectl("create", "token", account, "--duration=1h").strip()
    config = json.loads(namespace.cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": account, "user": {"token": token}}]
    cluster = config["contexts"][0]["context"]["cluster"]
    inner = {"cluster": cluster, "user": account, "namespace": namespace.name}
    config |= {"contexts": [{"name": context, "context": inner}], "current-context": context}
    path = folder / f"{context}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _workflow(name: str) -> Any:
    return yaml.safe_load((EXAMPLE / name).read_text())


def _run(command: list[str | Path], env: dict[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}", "BUILD_OPTIONS": _LABEL,
        "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0"), **env,
    }  # fmt: skip
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)
