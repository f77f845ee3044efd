"""The removal of the operator, as docs/operations.md describes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import cluster as clusters
from support.api import RefusedError, eventually
from support.cluster import NAMESPACE, ROOT, Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

CRD = "tritonmodels.tritonoperator.io"
KEPT = ("name", "namespace", "labels", "annotations")
CHILDREN = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "PodMonitor", "PrometheusRule")


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """Afterwards everything is there again: the operator, its monitoring, and TritonModels such as the demo's."""
    api = cluster.api.in_namespace("*")
    tests = {ns["metadata"]["name"] for ns in cluster.api.list("Namespace", "test=e2e")}
    models = [model for model in api.list("TritonModel") if model["metadata"]["namespace"] not in tests]
    yield cluster
    clusters.ensure()
    clusters.ensure_monitoring()
    for model in models:
        metadata = {key: model["metadata"][key] for key in KEPT if key in model["metadata"]}
        api.apply({**{key: model[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})


@pytest.mark.path
def test_the_removal_leaves_nothing_of_the_operator_and_of_its_models(installed: Cluster, namespace: Namespace) -> None:
    namespace.deploy("echo", installed.image(), replicas=2)  # a single server has no PodDisruptionBudget
    assert [kind for kind in CHILDREN if not _own(namespace, kind)] == []

    namespace.kubectl("delete", "tm", "--all", "--timeout=300s")
    for kind in (*CHILDREN, "ReplicaSet", "Pod"):
        eventually(lambda kind=kind: not _own(namespace, kind), 90, lambda kind=kind: _own(namespace, kind))

    installed.kubectl("delete", "-k", str(ROOT / "manifests" / "overlays" / "local"), "--timeout=300s")
    eventually(lambda: _is_gone(installed), 90, f"the namespace {NAMESPACE} and the CRD to end")
    with pytest.raises(RefusedError):
        namespace.api.apply(namespace.model("echo", installed.image()))


def _own(namespace: Namespace, kind: str) -> list[str]:
    """Returns the names of the objects of this kind that carry the operator's label."""
    return [obj["metadata"]["name"] for obj in namespace.api.list(kind, "tritonoperator.io/model")]


def _is_gone(cluster: Cluster) -> bool:
    leftovers = (("Namespace", NAMESPACE), ("CustomResourceDefinition", CRD), ("ClusterRole", "triton-operator"))
    return not any(cluster.api.find(kind, name) for kind, name in leftovers)
