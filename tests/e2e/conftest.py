"""One cluster for all tests, brought up as a user would; a namespace for each test, or for each group of them."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import cluster as clusters
from support.api import Object, eventually
from support.cluster import Cluster, Namespace

_LOAD = Path(__file__).parent / "client" / "load.py"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return clusters.ensure()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with cluster.namespace(_name(request.node.name)) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """For tests that look at the same servers and change nothing."""
    with cluster.namespace(_name(Path(request.node.name).stem)) as namespace:
        yield namespace


def _name(test: str) -> str:
    words = re.sub("[^a-z0-9]+", "-", test.lower()).removeprefix("test-")[:40].strip("-")
    return f"{words}-{uuid.uuid4().hex[:5]}"


@dataclass
class Load:
    """Requests that are under way. `result` is there once they have ended."""

    result: dict[str, Object]

    def failures(self) -> list[str]:
        return [f for protocol in self.result.values() for f in protocol["failures"]]


@pytest.fixture
def load(cluster: Cluster, namespace: Namespace) -> Callable[[str, float], contextlib.AbstractContextManager[Load]]:
    """load(service, requests a second): a pod that asks the service while the context lasts."""

    @contextlib.contextmanager
    def running(service: str, rate: float = 40) -> Iterator[Load]:
        pod = f"load-{service}"
        api = namespace.api
        api.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod}, "data": {"load.py": _LOAD.read_text()}}
        )
        api.apply(_pod(pod, cluster.operator_image, service, rate))
        eventually(lambda: "started" in namespace.kubectl("logs", pod, check=False), 60, "the load to start", every=0.3)
        load = Load({})
        yield load
        namespace.kubectl("exec", pod, "--", "busybox", "touch", "/tmp/stop")
        phase = eventually(lambda: _ended(namespace, pod), 60, "the load to end")
        out = namespace.kubectl("logs", pod)
        assert phase == "Succeeded", out
        load.result |= json.loads(out.splitlines()[-1])
        assert all(sum(told["versions"].values()) for told in load.result.values()), out
        api.delete("Pod", pod, gracePeriodSeconds=0)

    return running


def _ended(namespace: Namespace, pod: str) -> str:
    phase = str(namespace.api.get("Pod", pod)["status"]["phase"])
    return phase if phase in ("Succeeded", "Failed") else ""


def _pod(name: str, image: str, service: str, rate: float) -> Object:
    """The operator's image has Python and tritonclient; there is no need of another one."""
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
                    "command": ["python", "/client/load.py", service, str(rate)],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "client", "mountPath": "/client"}, {"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "client", "configMap": {"name": name}}, {"name": "tmp", "emptyDir": {}}],
        },
    }
