"""An API server with the CRDs of prometheus-operator, and a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.monitoring.steps import namespace, prometheus
from support import controlplane, operator_process
from support.api import Api
from support.controlplane import ControlPlane
from support.fake_prometheus import FakePrometheus
from triton_operator.api import names
from triton_operator.render.children import KINDS

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """An API server for this folder, with a Prometheus that selects objects with the label release=prometheus."""
    with controlplane.running() as control_plane:
        control_plane.install_crds()
        control_plane.install_monitoring()
        control_plane.install_keda()
        control_plane.install_routes()
        namespace(control_plane, "monitoring")
        prometheus(control_plane.api, "k8s", {"matchLabels": {"release": "prometheus"}})
        yield control_plane


@pytest.fixture
def own(plane: ControlPlane) -> Iterator[Api]:
    """A client in a new namespace. It deletes the test's objects afterwards, because no garbage collector runs here and
    the operator of the next test would reconcile them."""
    api = namespace(plane, f"test-{next(_numbers)}")
    yield api
    for kind in (names.KIND, "Pod", *(k.kind for k in KINDS)):
        for obj in api.list(kind):
            api.delete(kind, obj["metadata"]["name"], gracePeriodSeconds=0)


@pytest.fixture
def kubeconfig(plane: ControlPlane) -> Path:
    return operator_process.install(plane)


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    server = FakePrometheus()
    yield server
    server.close()
