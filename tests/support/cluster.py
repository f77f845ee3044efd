"""The kind cluster with the operator, installed by the scripts of `make demo`, as a user would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.world import settings
from triton_operator.api import names

from . import ports
from .api import Api, Object, condition, eventually

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
NAMESPACE = "triton-operator"
IMAGES = ROOT / "tests" / "e2e" / "images"


def ensure(*, operator: bool = True) -> Cluster:
    """Returns the cluster with the operator of this checkout. Creates or repairs it if needed."""
    with _alone():
        subprocess.run([ROOT / "hack" / "world.sh", "cluster"], check=True)
        if operator:
            subprocess.run([ROOT / "hack" / "deploy.sh"], check=True)
    return Cluster(CACHE / "kubeconfig")


def ensure_monitoring() -> None:
    """Installs Prometheus, Alertmanager, an alert receiver and prometheus-adapter in the cluster."""
    with _alone():
        subprocess.run([ROOT / "hack" / "world.sh", "monitoring"], check=True)
        subprocess.run([ROOT / "hack" / "monitoring.sh", "up"], check=True)


def ensure_parts(goal: str) -> None:
    """Makes the parts of this goal of hack/world.sh, and gives their images to the cluster."""
    subprocess.run([ROOT / "hack" / "world.sh", goal], check=True)
    subprocess.run([ROOT / "hack" / "cluster.sh", "mirror"], check=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Holds a lock, so that only one process of the tests changes shared objects at a time."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass
class Cluster:
    """A cluster with the rights of a cluster admin."""

    kubeconfig: Path
    _images: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        return Api.of(self.kubeconfig)

    @property
    def node(self) -> str:
        """Returns the name of the node's container."""
        return str(self.api.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"])

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Runs kubectl and returns its output, or its standard error if it fails and `check` is False."""
        path = settings.search_path()
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path},
        )  # fmt: skip
        if done.returncode:
            assert not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
            return done.stderr
        return done.stdout

    def image(self, name: str = "echo", change: str = "v1", base: str = "scratch", variant: str = "") -> str:
        """Builds and pushes a test image, and returns its reference by digest.

        `change` and `variant`: folders whose files are copied over the repository, one after the other.
        """
        tag = change if base == "scratch" else f"{change}-{re.sub('[^a-z0-9.]', '-', base)}"
        options = [f"--build-arg=CHANGE={change}", f"--build-arg=BASE={base}"]
        if variant:
            tag, options = f"{tag}-{variant}", [*options, f"--build-arg=VARIANT={variant}"]
        return self._built(name, IMAGES / name, tag, *options)

    def sample_image(self, name: str) -> str:
        """Builds and pushes the model image of a sample, and returns its reference by digest."""
        return self._built(name, ROOT / "model_images" / name, "dev")

    def image_of(self, name: str, context: Path) -> str:
        """Builds and pushes the image of the folder `context`, and returns its reference by digest."""
        return self._built("echo", context, name)

    @property
    def client_image(self) -> str:
        """Builds an image with Python and Triton's client, for pods that send requests, and returns its reference."""
        return self._built("client", ROOT / "requirements", "dev", f"--file={ROOT / 'tests/e2e/client/Dockerfile'}")

    @property
    def load_generator_image(self) -> str:
        """Builds the image of the load generator of `kubectl triton calibrate`, and returns its reference."""
        return self._built("perf-analyzer", ROOT, "dev", f"--file={ROOT / 'perf_analyzer/Dockerfile'}")

    def _built(self, name: str, context: Path, tag: str, *options: str) -> str:
        if (name, tag) not in self._images:
            with _alone():
                done = subprocess.run(
                    [ROOT / "hack" / "image.sh", name, context, *options],
                    stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TAG": tag},
                )  # fmt: skip
            self._images[name, tag] = done.stdout.strip()
        return self._images[name, tag]

    @property
    def server_image(self) -> str:
        """Returns the server image of the sample."""
        return str(self._sample()["spec"]["server"]["image"])

    @property
    def operator_image(self) -> str:
        deployment = self.api.get("Deployment", "triton-operator", NAMESPACE)
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])

    def _sample(self) -> Object:
        overlay = ROOT / "manifests" / "overlays" / "local-sample"
        sample: Object = yaml.safe_load(self.kubectl("kustomize", str(overlay)))
        return sample

    def leader(self) -> str:
        """Returns the name of the operator's pod that holds the Lease, or "" if none does."""
        lease = self.api.find("Lease", "triton-operator", NAMESPACE) or {}
        return str(lease.get("spec", {}).get("holderIdentity") or "").partition("_")[0]

    @contextlib.contextmanager
    def namespace(self, name: str) -> Iterator[Namespace]:
        """Creates a namespace that enforces the Pod Security Standard `restricted`, and deletes it afterwards."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "test": "e2e"}
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        try:
            yield Namespace(self, name, self.api.in_namespace(name))
        finally:
            self.api.delete("Namespace", name)


@dataclass
class Namespace:
    """A test's own namespace in the cluster."""

    cluster: Cluster
    name: str
    api: Api

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return self.cluster.kubectl("-n", self.name, *arguments, stdin=stdin, check=check)

    def model(self, name: str, image: str, **spec: Any) -> Object:
        """Returns a small TritonModel of the echo repository to apply. `spec` is merged over it."""
        merged = _merge(
            {
                "modelImage": {"reference": image},
                "entrypoint": "echo",
                "server": {
                    "image": self.cluster.server_image,
                    "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}},
                },
                # Long enough for kube-proxy to update its rules on a busy machine (6 s were too short).
                "rollout": {"drainSeconds": 12, "exitSeconds": 5},
            },
            spec,
        )
        return {
            "apiVersion": "tritonoperator.io/v1alpha1",
            "kind": "TritonModel",
            "metadata": {"name": name, "namespace": self.name},
            "spec": merged,
        }

    def deploy(self, name: str, image: str, **spec: Any) -> Object:
        """Applies a small TritonModel and waits until it is ready and the rollout is complete."""
        self.api.apply(self.model(name, image, **spec))
        return self.wait_until_complete(name)

    def wait_until_complete(self, name: str, seconds: float = 240) -> Object:
        """Waits until every server runs the current spec and is ready, and returns the TritonModel."""

        def look() -> Object | None:
            found = self.api.get("TritonModel", name)
            seen = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            ready, progressing = condition(found, "Ready"), condition(found, "Progressing")
            good = ready.get("status") == "True" and progressing.get("reason") == "Complete"
            return found if seen and good else None

        return eventually(look, seconds, lambda: self.conditions_text(name))

    def conditions_text(self, name: str) -> str:
        """Returns the conditions as text, for failure messages."""
        found = self.api.find("TritonModel", name) or {}
        lines = [
            f"{c['type']}={c['status']} {c['reason']}: {c['message']}"
            for c in found.get("status", {}).get("conditions", [])
        ]
        return "\n".join([f"{self.name}/{name}", *lines])

    def wait_for_condition(self, name: str, kind: str, status: str, reason: str, seconds: float = 180) -> str:
        """Waits for this condition and returns its message."""

        def look() -> Object | None:
            found = self.api.get("TritonModel", name)
            current = condition(found, kind)
            now = current.get("observedGeneration") == found["metadata"]["generation"]
            return current if now and (current["status"], current["reason"]) == (status, reason) else None

        return str(
            eventually(look, seconds, lambda: f"{kind}={status} {reason}; but {self.conditions_text(name)}")["message"]
        )

    def pods(self, name: str) -> list[Object]:
        """Returns the servers' pods that aren't being deleted."""
        found = self.api.list("Pod", names.as_query(names.selector(name)))
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    @contextlib.contextmanager
    def port_forward(self, service: str, port: int) -> Iterator[str]:
        """Runs `kubectl port-forward` to a Service and yields localhost:port. Use it only for single requests."""
        [local] = ports.free()
        command = ["kubectl", f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.name, "port-forward"]
        process = subprocess.Popen(
            [*command, f"service/{service}", f"{local}:{port}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PATH": settings.search_path()},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Forwarding"), line + process.stdout.read()
            yield f"localhost:{local}"
        finally:
            process.terminate()
            process.wait()


def get(url: str) -> tuple[int, str]:
    """Sends a GET. Returns the status and the body, or 0 and the error if there is no response."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def seconds_since(start: float) -> float:
    return time.monotonic() - start


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
