"""Installs Envoy Gateway in the kind cluster, and creates the Gateway of docs/stateful.md."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator

import yaml

from hack.world.parts import envoy_gateway

from . import helm
from .api import Object, eventually
from .cluster import NAMESPACE as OPERATOR_NAMESPACE
from .cluster import ROOT, Cluster, Namespace, ensure_parts

NAMESPACE = "envoy-gateway-system"
PROXIES = ("-l", "gateway.envoyproxy.io/owning-gateway-name")
_FLAGS = (f"--namespace={NAMESPACE}", "--wait", "--timeout=240s")
_PAGE = ROOT / "docs" / "stateful.md"
_GROUPS = ("gateway.networking.k8s.io", "gateway.envoyproxy.io")
# The class that the page's Gateway names. kind has no load balancer, so Envoy has an address of the cluster only.
_CLASS: tuple[Object, ...] = (
    {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyProxy",
        "metadata": {"name": "small", "namespace": NAMESPACE},
        "spec": {
            # By default a pod of Envoy takes a minute to end.
            "shutdown": {"drainTimeout": "1s", "minDrainDuration": "0s"},
            "provider": {
                "type": "Kubernetes",
                "kubernetes": {
                    "envoyService": {"type": "ClusterIP"},
                    "envoyDeployment": {"container": {"resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}}},
                },
            }
        },
    },
    {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "envoy"},
        "spec": {
            "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "parametersRef": {
                "group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "small", "namespace": NAMESPACE,
            },
        },
    },
)  # fmt: skip


# What the rate limit service counts in.
_REDIS: tuple[Object, ...] = (
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "redis", "namespace": NAMESPACE, "labels": {"app": "redis"}},
        "spec": {"containers": [{"name": "redis", "image": envoy_gateway.REDIS}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "redis", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "redis"}, "ports": [{"port": 6379}]},
    },
)
_COUNTS = (
    "--set=config.envoyGateway.rateLimit.backend.type=Redis",
    f"--set=global.images.ratelimit.image={envoy_gateway.RATE_LIMIT}",
    f"--set=config.envoyGateway.rateLimit.backend.redis.url=redis.{NAMESPACE}.svc:6379",
)


def set_proxies(cluster: Cluster, number: int) -> None:
    """Sets how many Envoys each Gateway has."""
    change = {"spec": {"provider": {"kubernetes": {"envoyDeployment": {"replicas": number}}}}}
    cluster.kubectl("-n", NAMESPACE, "patch", "envoyproxy", "small", "--type=merge", "-p", json.dumps(change))


def ready_proxies(cluster: Cluster) -> int:
    """Returns how many Envoys there are; 0 while one of them starts or ends."""
    pods = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pod", *PROXIES, "-o", "json"))["items"]
    ready = [
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        and not pod["metadata"].get("deletionTimestamp")
        for pod in pods
    ]
    return len(ready) if all(ready) else 0


def tell_service(cluster: Cluster, value: str) -> None:
    """Sets RATE_LIMIT_SERVICE of the operator ("" for its default), and waits until it has restarted."""
    change = f"RATE_LIMIT_SERVICE={value}" if value else "RATE_LIMIT_SERVICE-"
    cluster.kubectl("-n", OPERATOR_NAMESPACE, "set", "env", "deployment/triton-operator", change)
    cluster.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=120s")


def install(cluster: Cluster, *, counts: bool = False) -> None:
    """Installs Envoy Gateway with its chart, or upgrades it. `counts`: with the rate limit service."""
    ensure_parts("gateway")
    values = (
        # Without a digest, because the image may be built on this machine.
        f"--set=global.images.envoyProxy.image={envoy_gateway.ENVOY}",
        "--set=deployment.envoyGateway.resources.requests.cpu=20m",
        "--set=deployment.envoyGateway.resources.requests.memory=64Mi",
        *(_COUNTS if counts else ()),
    )
    command = ("upgrade", "envoy-gateway", envoy_gateway.CHART, "--install", "--create-namespace", *_FLAGS, *values)
    helm.run(*command, kubeconfig=cluster.kubeconfig)
    objects = (*_CLASS, *(_REDIS if counts else ()))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    if counts:
        api = cluster.api.in_namespace(NAMESPACE)
        eventually(lambda: api.find("Deployment", "envoy-ratelimit"), 60, "the rate limit service")
        for condition, name in (("Ready", "pod/redis"), ("Available", "deployment/envoy-ratelimit")):
            cluster.kubectl("-n", NAMESPACE, "wait", f"--for=condition={condition}", name, "--timeout=120s")


@contextlib.contextmanager
def installed(cluster: Cluster, *, counts: bool = False) -> Iterator[None]:
    """Has Envoy Gateway while the context lasts, as `install` does."""
    try:
        install(cluster, counts=counts)
        yield
    finally:
        # Only Envoy Gateway removes its finalizer, so it must run until the last Gateway and its class are gone.
        for kind, options in (("gateway", ("--all-namespaces",)), ("gatewayclass", ())):
            cluster.kubectl("delete", kind, "--all", *options, "--timeout=120s", check=False)
        # The namespace would wait for half of the grace period of these pods, which is five minutes.
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", *PROXIES, "--timeout=60s", check=False)
        helm.run("uninstall", "envoy-gateway", "--ignore-not-found", *_FLAGS, kubeconfig=cluster.kubeconfig)
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        # Helm keeps the CRDs of a chart.
        for name in cluster.kubectl("get", "crd", "-o", "name").split():
            if name.partition("/")[2].partition(".")[2] in _GROUPS:
                cluster.kubectl("delete", name)


def page_objects() -> tuple[Object, Object]:
    """Returns the Gateway of the page's example, and the spec of its TritonModel."""
    section = _PAGE.read_text().partition("\n### Gateway\n")[2].partition("\n## ")[0]
    gateway, spec = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL))
    return gateway, spec["spec"]


def address(namespace: Namespace, gateway: Object) -> str:
    """Creates the Gateway, and returns its address after Envoy has started."""
    namespace.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(gateway))
    namespace.kubectl("wait", "--for=condition=Programmed", "gateway", "--all", "--timeout=120s")
    return namespace.kubectl("get", "gateway", "-o", "jsonpath={.items[0].status.addresses[0].value}")
