"""Helm takes over, upgrades, rolls back, uninstalls and installs the operator while a model serves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support import cluster as clusters
from support import helm as helms
from support.api import eventually
from support.cluster import NAMESPACE, Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]
CRD = "tritonmodels.tritonoperator.io"
OPERATOR = "app.kubernetes.io/name=triton-operator"
FORCE = "--force-conflicts"
"""For an installation by kubectl, which stays an owner of the fields."""


class Helm:
    """Helm with the image of the installed operator."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        repository, _, digest = cluster.operator_image.partition("@")
        self.values = f"--set=image.repository={repository},image.digest={digest}"

    def __call__(self, command: str, release: str, *arguments: str | Path) -> str:
        options = (f"--namespace={NAMESPACE}", "--wait", "--timeout=120s")
        return helms.run(command, release, *options, *arguments, kubeconfig=self.cluster.kubeconfig)

    def install(self, *arguments: str) -> None:
        """Installs or upgrades the operator, and waits until its pods are ready."""
        self("upgrade", "triton-operator", helms.OPERATOR, "--install", self.values, *arguments)


@pytest.fixture
def helm(cluster: Cluster) -> Iterator[Helm]:
    """Afterwards installs the operator by kustomize again, as for the other tests."""
    yield Helm(cluster)
    for release in ("triton-operator", "triton-operator-crds"):
        with contextlib.suppress(helms.HelmError):
            helms.run("uninstall", release, f"--namespace={NAMESPACE}", kubeconfig=cluster.kubeconfig)
    mine = ["helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"]
    # The test may have failed without the CRD.
    cluster.kubectl("annotate", "crd", CRD, *(f"{key}-" for key in mine), check=False)
    cluster.kubectl("label", "crd", CRD, "app.kubernetes.io/managed-by-", check=False)
    clusters.ensure()


def _works(namespace: Namespace, name: str) -> None:
    """Asserts that an operator creates the children of a new TritonModel."""
    namespace.api.apply(namespace.model(name, namespace.cluster.image(), replicas=0))
    eventually(lambda: namespace.api.find("Deployment", name), 60, f"the Deployment of {name}")


def test_a_model_serves_while_helm_changes_the_operator(
    cluster: Cluster, namespace: Namespace, load: Loader, helm: Helm
) -> None:
    namespace.deploy("echo", cluster.image())
    before = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo", 10) as during:
        # The installation by kubectl becomes Helm's, without a restart of the operator.
        operators = _operators(cluster)
        helm("upgrade", "triton-operator-crds", helms.CRDS, "--install", "--take-ownership", FORCE)
        helm.install("--take-ownership", FORCE)
        assert _operators(cluster) == operators

        helm.install("--set=settings.LOG_LEVEL=DEBUG", FORCE)
        eventually(lambda: not _operators(cluster) & operators, 30, "only new operators")
        _works(namespace, "upgraded")

        # The operator of the last revision stays until a new one is ready.
        operators = _operators(cluster)
        with pytest.raises(helms.HelmError):
            helm.install("--set=image.digest=", "--set=image.tag=missing", "--timeout=8s", FORCE)
        assert operators <= _operators(cluster)
        helm("rollback", "triton-operator", "2", FORCE)
        eventually(lambda: _operators(cluster) == operators, 30, "only the operators of the last revision")
        _works(namespace, "rolled-back")

        helm("uninstall", "triton-operator")
        helm("uninstall", "triton-operator-crds")
        eventually(lambda: not cluster.api.list("Pod", OPERATOR, NAMESPACE), 60, "no operator")
        assert namespace.api.get("TritonModel", "echo")
        namespace.kubectl("scale", "tritonmodel", "rolled-back", "--replicas=1")

        helm("install", "triton-operator-crds", helms.CRDS)
        helm.install()
        # The new operator sees the change that was made while none was installed.
        namespace.wait_until_complete("rolled-back")
    assert during.failures() == []
    namespace.wait_until_complete("echo")
    assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == before, "no server was replaced"


def _operators(cluster: Cluster) -> set[str]:
    """Returns the uids of the operator's pods that aren't being deleted."""
    found = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return {p["metadata"]["uid"] for p in found if "deletionTimestamp" not in p["metadata"]}
