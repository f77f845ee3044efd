"""A real API server for all tests of a session, a namespace for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from support import controlplane
from support.api import Api
from support.controlplane import ControlPlane

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """An API server that knows TritonModels. No controllers: what a test sees, the operator or the test made."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


@pytest.fixture(scope="session")
def control_plane_with_controllers() -> Iterator[ControlPlane]:
    """Another one, in which Deployments have ReplicaSets and pods (that never run), and garbage is collected."""
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver")
    with controlplane.running(controllers=True) as plane:
        plane.install_crds()
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """A fresh namespace. Without controllers none is ever deleted; the server goes at the end."""
    name = f"test-{next(_numbers)}"
    control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def api(control_plane: ControlPlane, namespace: str) -> Api:
    """A cluster admin's view of the test's namespace."""
    return control_plane.api.within(namespace)
