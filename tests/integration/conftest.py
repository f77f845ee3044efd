"""A real API server for the test session, and a namespace for each test."""

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
    """An API server with the CRD of TritonModels. No controllers run: only the operator and the tests write objects."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


@pytest.fixture(scope="session")
def control_plane_with_controllers() -> Iterator[ControlPlane]:
    """Another API server, with kube-controller-manager: it creates pods (that never run) and collects garbage."""
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager is not installed beside kube-apiserver")
    with controlplane.running(controllers=True) as plane:
        plane.install_crds()
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """A new namespace. It is never deleted, because no controllers run; the API server stops after the session."""
    name = f"test-{next(_numbers)}"
    control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def api(control_plane: ControlPlane, namespace: str) -> Api:
    """A client of a cluster admin, in the namespace of the test."""
    return control_plane.api.in_namespace(namespace)
