"""Fixtures: one cluster for all tests, installed as a user would, and a namespace for each test or module."""

from __future__ import annotations

import contextlib
import functools
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import cluster as clusters
from support import evidence
from support import load as loads
from support.cluster import Cluster, Namespace
from support.load import Load
from support.prometheus import Monitoring


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Returns the cluster. It has monitoring from the start, because a later installation changes every TritonModel."""
    cluster = clusters.ensure()
    clusters.ensure_monitoring()
    operator = evidence.of_namespace(cluster.api.in_namespace(clusters.NAMESPACE))
    with (
        evidence.on_failure("the operator", operator),
        evidence.on_failure("the nodes", evidence.of_nodes(cluster.api)),
    ):
        yield cluster


@pytest.fixture(scope="session")
def monitoring(cluster: Cluster) -> Iterator[Monitoring]:
    monitoring = Monitoring(cluster)
    with evidence.on_failure("monitoring", monitoring.collect):
        yield monitoring


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with cluster.namespace(_name(request.node.name)) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Creates a namespace for tests that share servers and don't change them."""
    with cluster.namespace(_name(Path(request.node.name).stem)) as namespace:
        yield namespace


def _name(test: str) -> str:
    words = re.sub("[^a-z0-9]+", "-", test.lower()).removeprefix("test-")[:40].strip("-")
    return f"{words}-{uuid.uuid4().hex[:5]}"


@pytest.fixture
def load(namespace: Namespace) -> Callable[..., contextlib.AbstractContextManager[Load]]:
    """Returns load(service, requests per second): a pod that sends requests while the context lasts."""
    return functools.partial(loads.load, namespace)
