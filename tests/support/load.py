"""Sends real requests to an echo server from a pod in the cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import evidence
from .api import Object, eventually
from .cluster import ROOT, Namespace

_SCRIPT = ROOT / "tests" / "e2e" / "client" / "load.py"


@dataclass
class Load:
    """Running requests. `result` is set after they end. `log`: returns what the client has printed."""

    result: dict[str, Object]
    log: Callable[[], str]

    def reaches(self, version: str) -> bool:
        """Whether this version of the model has answered over both protocols."""
        return {f"{protocol}: {version}" for protocol in ("http", "grpc")} <= set(self.log().splitlines())

    def failures(self) -> list[str]:
        return [f for protocol in self.result.values() for f in protocol["failures"]]


@contextlib.contextmanager
def load(
    namespace: Namespace,
    service: str,
    rate: float = 40,
    name: str = "load",
    hosts: Mapping[str, list[str]] | None = None,
) -> Iterator[Load]:
    """Runs a pod that sends `rate` requests per second to `service` while the context lasts.

    `hosts`: address → host names that it has in the pod.
    """
    pod = f"{name}-{service}"
    load = Load({}, lambda: namespace.kubectl("logs", pod))
    command = ["python", "/client/load.py", service, str(rate)]
    with client(namespace, pod, [_SCRIPT], command, hosts) as result:
        yield load
    load.result |= result
    assert all(sum(counts["versions"].values()) for counts in load.result.values()), load.result


@contextlib.contextmanager
def client(
    namespace: Namespace,
    pod: str,
    scripts: Iterable[Path],
    command: list[str],
    hosts: Mapping[str, list[str]] | None = None,
) -> Iterator[Object]:
    """Runs a pod with `scripts` in /client while the context lasts. Gives a dict for its result.

    `hosts`: address → host names that it has in the pod.

    It prints `started` when it sends requests, ends when /tmp/stop exists, and prints its result as a line of JSON.
    """
    api, files = namespace.api, {script.name: script.read_text() for script in scripts}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod}, "data": files})
    api.apply(client_pod(pod, namespace.cluster.client_image, command, hosts))
    result: Object = {}
    try:
        with evidence.on_failure(pod, evidence.of_pod(api, pod)):
            out = eventually(lambda: _begun(namespace, pod), 180, "the client to start", every=0.3)
            assert "started" in out, out
            yield result
            namespace.kubectl("exec", pod, "--", "touch", "/tmp/stop")
            phase = eventually(lambda: ended(namespace, pod), 120, "the client to end")
            out = namespace.kubectl("logs", pod)
            assert phase == "Succeeded", out
            result |= json.loads(out.splitlines()[-1])
    finally:
        api.delete("Pod", pod, gracePeriodSeconds=0)


@contextlib.contextmanager
def sleeping_client(
    namespace: Namespace, pod: str, scripts: Iterable[Path], hosts: Mapping[str, list[str]] | None = None
) -> Iterator[None]:
    """Runs a pod with `scripts` in /client for `kubectl exec`, while the context lasts. `hosts`: as in `client`."""
    api, files = namespace.api, {script.name: script.read_text() for script in scripts}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod}, "data": files})
    api.apply(client_pod(pod, namespace.cluster.client_image, ["sleep", "infinity"], hosts))
    try:
        namespace.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
        yield
    finally:
        api.delete("Pod", pod, gracePeriodSeconds=0)


def _begun(namespace: Namespace, pod: str) -> str:
    """Returns the pod's log after the load started or the pod ended, else ""."""
    phase, out = ended(namespace, pod), namespace.kubectl("logs", pod, check=False)
    return out if "started" in out or phase else ""


def ended(namespace: Namespace, pod: str) -> str:
    """Returns the phase of a pod that has ended, else ""."""
    phase = str(namespace.api.get("Pod", pod)["status"]["phase"])
    return phase if phase in ("Succeeded", "Failed") else ""


def client_pod(name: str, image: str, command: list[str], hosts: Mapping[str, list[str]] | None = None) -> Object:
    """Returns a pod that runs `command` once. It mounts the ConfigMap `name` at /client.

    `hosts`: address → host names that it has in the pod.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "hostAliases": [{"ip": address, "hostnames": known} for address, known in (hosts or {}).items()],
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "load",
                    "image": image,
                    "command": command,
                    # By default gRPC also asks the DNS, which may take seconds to know that it doesn't know the name.
                    "env": [{"name": "GRPC_DNS_RESOLVER", "value": "native"}] if hosts else [],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "client", "mountPath": "/client"}, {"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "client", "configMap": {"name": name}}, {"name": "tmp", "emptyDir": {}}],
        },
    }
