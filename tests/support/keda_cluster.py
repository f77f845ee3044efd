"""Installs KEDA in the kind cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml

from .api import MIN_WAIT_SECONDS, eventually
from .cluster import ROOT, Cluster, ensure_parts

_MANIFEST = ROOT / "tests" / "support" / "vendor" / "keda.yaml"
_METRICS = "v1beta1.external.metrics.k8s.io"


@contextlib.contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Installs KEDA with its manifest while the context lasts. At the end, no ScaledObject remains."""
    ensure_parts("keda")
    manifest = yaml.safe_dump_all(_objects())
    try:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
        cluster.kubectl("-n", "keda", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=240s")
        cluster.kubectl("wait", "--for=condition=Available", "apiservice", _METRICS, "--timeout=240s")
        yield
    finally:
        # Only KEDA removes its finalizers, so it must run until the last ScaledObject is gone.
        cluster.kubectl("delete", "scaledobject", "--all", "--all-namespaces", "--timeout=120s", check=False)
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=manifest)
        api = cluster.api.in_namespace("*")
        eventually(lambda: not api.find("Namespace", "keda"), 3 * MIN_WAIT_SECONDS, "KEDA's namespace to end")


def _objects() -> list[dict[str, object]]:
    """Returns KEDA's objects, with small requests of CPU and memory."""
    objects = [o for o in yaml.safe_load_all(_MANIFEST.read_text()) if o]
    for obj in objects:
        if obj["kind"] == "Deployment":
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    return objects
