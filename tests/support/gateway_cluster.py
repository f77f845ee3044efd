"""Installs Envoy Gateway in the kind cluster, and creates the Gateway of docs/stateful.md."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import yaml

from hack.world.parts import envoy_gateway

from . import helm
from .api import Object
from .cluster import ROOT, Cluster, Namespace, ensure_parts

NAMESPACE = "envoy-gateway-system"
PROXIES = ("-l", "gateway.envoyproxy.io/owning-gateway-name")
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


@contextlib.contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Installs Envoy Gateway with its chart while the context lasts."""
    ensure_parts("gateway")
    flags = (f"--namespace={NAMESPACE}", "--wait", "--timeout=240s")
    values = (
        # Without a digest, because the image may be built on this machine.
        f"--set=global.images.envoyProxy.image={envoy_gateway.ENVOY}",
        "--set=deployment.envoyGateway.resources.requests.cpu=20m",
        "--set=deployment.envoyGateway.resources.requests.memory=64Mi",
    )
    install = ("upgrade", "envoy-gateway", envoy_gateway.CHART, "--install", "--create-namespace", *flags, *values)
    try:
        helm.run(*install, kubeconfig=cluster.kubeconfig)
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(_CLASS))
        yield
    finally:
        # Only Envoy Gateway removes its finalizer, so it must run until the last Gateway and its class are gone.
        for kind, options in (("gateway", ("--all-namespaces",)), ("gatewayclass", ())):
            cluster.kubectl("delete", kind, "--all", *options, "--timeout=120s", check=False)
        # The namespace would wait for half of the grace period of these pods, which is five minutes.
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", *PROXIES, "--timeout=60s", check=False)
        helm.run("uninstall", "envoy-gateway", "--ignore-not-found", *flags, kubeconfig=cluster.kubeconfig)
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
