"""The kind cluster with the operator, installed by the scripts of `make demo`, as a user would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.world import settings
from triton_operator.api import names

from . import children, evidence, ports
from .api import MIN_WAIT_SECONDS, Api, Object, condition, eventually, note

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
NAMESPACE = "triton-operator"
OPERATOR = "app.kubernetes.io/name=triton-operator"
"""The label of the operator's pods."""
IMAGES = ROOT / "tests" / "e2e" / "images"


def ensure(*, operator: bool = True) -> Cluster:
    """Returns the cluster with the operator of this checkout. Creates or repairs it if needed."""
    with _alone():
        # With Kubernetes' default periods most tests would wait for the kubelet. Benchmarks set PERIODS=default.
        environ = {"PERIODS": "short", **os.environ}
        subprocess.run([ROOT / "hack" / "world.sh", "cluster"], check=True, env=environ)
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
        process = subprocess.run(
            ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path},
        )  # fmt: skip
        out = process.stderr if process.returncode else process.stdout
        note(f"kubectl {' '.join(arguments)}", out)
        assert not (process.returncode and check), f"kubectl {' '.join(arguments)}: {out}"
        return out

    def image(self, name: str = "echo", change: str = "v1", base: str = "scratch") -> str:
        """Builds and pushes a test image, and returns its reference by digest."""
        tag = change if base == "scratch" else f"{change}-{re.sub('[^a-z0-9.]', '-', base)}"
        return self._built(name, IMAGES / name, tag, f"--build-arg=CHANGE={change}", f"--build-arg=BASE={base}")

    def sample_image(self, name: str, **parameters: str) -> str:
        """Builds and pushes the model image of a sample, and returns its reference by digest.

        `parameters`: other values of the parameters in the config.pbtxt of the model that is named as the sample.
        """
        sample = ROOT / "model_images" / name
        if not parameters:
            return self._built(name, sample, "dev")
        with tempfile.TemporaryDirectory() as folder:
            context = shutil.copytree(sample, Path(folder) / name)
            config = context / "repository" / name / "config.pbtxt"
            config.write_text(_with_parameters(config.read_text(), parameters))
            tag = "-".join(["dev", *(f"{key}.{value}" for key, value in sorted(parameters.items()))])
            return self._built(name, context, tag)

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
                process = subprocess.run(
                    [ROOT / "hack" / "image.sh", name, context, *options],
                    stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TAG": tag},
                )  # fmt: skip
            self._images[name, tag] = process.stdout.strip()
        return self._images[name, tag]

    @property
    def server_image(self) -> str:
        """Returns the server image of the sample."""
        return str(self._sample()["spec"]["server"]["image"])

    @property
    def tracing_server_image(self) -> str:
        """Builds the server image of the sample with a version number that may trace, and returns its reference."""
        build = f"--build-arg=BASE={self.server_image}"
        return self._built("server", IMAGES / "server_2_57", "2.57", build)

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
        return str(self._lease().get("holderIdentity") or "").partition("_")[0]

    def wait_for_operator(self, replicas: int = 2) -> None:
        """Waits until this number of the operator's pods is ready, all others have ended, and one of them leads.

        The Lease of a former leader has its name until it expires, also if that container has restarted.
        """
        renewal = self._lease().get("renewTime")

        def works() -> bool:
            pods = self.api.list("Pod", OPERATOR, NAMESPACE)
            living = {p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]}
            ready = {p["metadata"]["name"] for p in pods if condition(p, "Ready").get("status") == "True"}
            if not len(pods) == len(living & ready) == replicas:
                return False
            return not replicas or (self._lease().get("renewTime") != renewal and self.leader() in living)

        eventually(works, 180, f"{replicas} pods of the operator and a leader")

    def kill_leader(self) -> None:
        """Deletes the pod that leads, without a grace period."""
        leader = eventually(self.leader, 60, "a leader")
        self.kubectl("-n", NAMESPACE, "delete", "pod", leader, "--force", "--grace-period=0", "--wait=false")

    def _lease(self) -> Object:
        return dict((self.api.find("Lease", "triton-operator", NAMESPACE) or {}).get("spec", {}))

    @contextlib.contextmanager
    def namespace(self, name: str) -> Iterator[Namespace]:
        """Creates a namespace that enforces the Pod Security Standard `restricted`, and deletes it afterwards."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "test": "e2e"}
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        namespace = Namespace(self, name, self.api.in_namespace(name))
        try:
            with evidence.on_failure(name, evidence.of_namespace(namespace.api)):
                yield namespace
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
        """Waits until every server runs the current spec and is ready, and returns the TritonModel.

        Reads the Deployment, too: after a change of only the Deployment, the status may be that before the change.
        """

        def look() -> Object | None:
            deployment = self.api.find("Deployment", name)
            model = self.api.get("TritonModel", name)
            observed = model.get("status", {}).get("observedGeneration") == model["metadata"]["generation"]
            ready, progressing = condition(model, "Ready"), condition(model, "Progressing")
            complete = ready.get("status") == "True" and progressing.get("reason") == "Complete"
            return model if observed and complete and deployment and _rolled_out(deployment) else None

        return eventually(look, seconds, lambda: self.conditions_text(name))

    def conditions_text(self, name: str) -> str:
        """Returns the conditions as text, for failure messages."""
        model = self.api.find("TritonModel", name) or {}
        lines = [
            f"{c['type']}={c['status']} {c['reason']}: {c['message']}"
            for c in model.get("status", {}).get("conditions", [])
        ]
        return "\n".join([f"{self.name}/{name}", *lines])

    def wait_for_condition(self, name: str, kind: str, status: str, reason: str, seconds: float = 180) -> str:
        """Waits for this condition and returns its message."""

        def look() -> Object | None:
            model = self.api.get("TritonModel", name)
            entry = condition(model, kind)
            observed = entry.get("observedGeneration") == model["metadata"]["generation"]
            return entry if observed and (entry["status"], entry["reason"]) == (status, reason) else None

        return str(
            eventually(look, seconds, lambda: f"{kind}={status} {reason}; but {self.conditions_text(name)}")["message"]
        )

    def pods(self, name: str) -> list[Object]:
        """Returns the servers' pods that aren't being deleted."""
        pods = self.api.list("Pod", names.as_query(names.selector(name)))
        return [p for p in pods if "deletionTimestamp" not in p["metadata"]]

    @contextlib.contextmanager
    def port_forward(self, service: str, port: int) -> Iterator[str]:
        """Runs `kubectl port-forward` to a Service and yields localhost:port. Use it only for single requests."""
        [local] = ports.free()
        command = ["kubectl", f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.name, "port-forward"]
        process = children.start(
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
        with urllib.request.urlopen(url, timeout=MIN_WAIT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def _rolled_out(deployment: Object) -> bool:
    """Returns whether the Deployment's controller has seen its spec, and every pod has it and is ready."""
    replicas, status = deployment["spec"]["replicas"], deployment.get("status", {})
    counts = {status.get(count, 0) for count in ("replicas", "updatedReplicas", "readyReplicas")}
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == {replicas}


def _with_parameters(config: str, parameters: dict[str, str]) -> str:
    """Returns a config.pbtxt with these values of parameters, each of which has a line, perhaps as a comment."""
    for name, value in parameters.items():
        line = f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}'
        config, count = re.subn(rf'^(# )?parameters \{{ key: "{name}" .*$', line, config, flags=re.MULTILINE)
        assert count == 1, f"{name} is in {count} lines of {config}"
    return config


def _merge(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if nested else value
    return merged
