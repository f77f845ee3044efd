"""Sends real requests to an echo server from a pod in the cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from .api import Object, eventually
from .cluster import ROOT, Namespace

_SCRIPT = ROOT / "tests" / "e2e" / "client" / "load.py"


@dataclass
class Load:
    """Running requests. `result` is set after they end."""

    result: dict[str, Object]

    def failures(self) -> list[str]:
        return [f for protocol in self.result.values() for f in protocol["failures"]]


@contextlib.contextmanager
def load(namespace: Namespace, service: str, rate: float = 40, name: str = "load") -> Iterator[Load]:
    """Runs a pod that sends `rate` requests per second to `service` while the context lasts."""
    pod, api = f"{name}-{service}", namespace.api
    script = {"load.py": _SCRIPT.read_text()}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod}, "data": script})
    api.apply(client_pod(pod, namespace.cluster.client_image, ["python", "/client/load.py", service, str(rate)]))
    try:
        out = eventually(lambda: _begun(namespace, pod), 60, "the load to start", every=0.3)
        assert "started" in out, out
        load = Load({})
        yield load
        namespace.kubectl("exec", pod, "--", "touch", "/tmp/stop")
        phase = eventually(lambda: ended(namespace, pod), 60, "the load to end")
        out = namespace.kubectl("logs", pod)
        assert phase == "Succeeded", out
        load.result |= json.loads(out.splitlines()[-1])
        assert all(sum(counts["versions"].values()) for counts in load.result.values()), out
    finally:
        api.delete("Pod", pod, gracePeriodSeconds=0)


def _begun(namespace: Namespace, pod: str) -> str:
    """Returns the pod's log after the load started or the pod ended, else ""."""
    over, out = ended(namespace, pod), namespace.kubectl("logs", pod, check=False)
    return out if "started" in out or over else ""


def ended(namespace: Namespace, pod: str) -> str:
    """Returns the phase of a pod that has ended, else ""."""
    phase = str(namespace.api.get("Pod", pod)["status"]["phase"])
    return phase if phase in ("Succeeded", "Failed") else ""


def client_pod(name: str, image: str, command: list[str]) -> Object:
    """Returns a pod that runs `command` once. It mounts the ConfigMap `name` at /client."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "load",
                    "image": image,
                    "command": command,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "client", "mountPath": "/client"}, {"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "client", "configMap": {"name": name}}, {"name": "tmp", "emptyDir": {}}],
        },
    }
