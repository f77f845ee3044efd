"""What the operator polls of the cluster, and which TritonModels it reconciles for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.monitoring import NAMESPACES, PROMETHEUSES
from triton_operator.cluster.nodes import NODES
from triton_operator.cluster.store import Store
from triton_operator.reconcile import Cluster
from triton_operator.render.children import KINDS
from triton_operator.runtime.discovery import Discovery
from triton_operator.runtime.listing import Listing
from triton_operator.runtime.settings import Settings

MONITORING = {kind for kind in KINDS if kind.group == PROMETHEUSES.group}
SETTINGS = Settings("tools:1", "triton-operator", "me")


class Server:
    """An API server with these optional kinds, Prometheuses and namespaces. `lists`: the kinds that were listed."""

    def __init__(self) -> None:
        self.kinds, self.prometheuses, self.lists = set[Kind](), list[str](), list[Kind]()
        self.labels: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.failing: set[Kind] = set()

    def version(self) -> dict[str, str]:
        return {"major": "1", "minor": "36"}

    def serves(self, kind: Kind) -> bool:
        return kind in self.kinds

    def list(self, kind: Kind, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        self.lists.append(kind)
        if kind in self.failing:
            raise ApiError(500, "", "no")
        if kind == NODES:
            yield {"status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}}
        if kind == NAMESPACES:
            yield from ({"metadata": {"name": name, "labels": labels}} for name, labels in self.labels.items())
        if kind == PROMETHEUSES:
            yield from ({"metadata": {"namespace": "monitoring", "name": name}} for name in self.prometheuses)


class Scene:
    """`reconciled`: for each change of the Prometheuses, the namespaces that are reconciled for it.

    `found`: what is known when the optional kinds have changed.
    """

    def __init__(self, *, leads: bool = True) -> None:
        self.server, self.reconciled, self.found = Server(), list[list[str]](), list[Cluster]()
        self.leads = leads
        api: Any = self.server
        self.subject = Discovery(
            api,
            Listing(api, Store(), ()),
            SETTINGS,
            lambda: self.leads,
            lambda: self.found.append(self.subject.cluster()),
            self._on_monitoring,
        )

    def poll(self) -> None:
        asyncio.run(self.subject._poll())

    def _on_monitoring(self, concerns: Callable[[str], bool]) -> None:
        self.reconciled.append([namespace for namespace in self.server.labels if concerns(namespace)])


def test_reconciles_only_what_a_change_of_the_prometheuses_may_concern() -> None:
    scene = Scene()
    scene.server.kinds = set(MONITORING)
    scene.poll()
    assert scene.reconciled == [["a", "b"]]
    scene.poll()
    assert scene.reconciled == [["a", "b"]], "nothing has changed"
    scene.server.labels = {"a": {}, "b": {"team": "vision"}}
    scene.poll()
    assert scene.reconciled[1:] == [["b"]]
    scene.server.prometheuses = ["k8s"]
    scene.poll()
    assert scene.reconciled[2:] == [["a", "b"]]


def test_knows_the_prometheuses_before_a_reconcile_sees_that_the_cluster_has_the_kinds() -> None:
    scene = Scene()
    scene.poll()
    assert not scene.subject.cluster().capabilities.monitoring
    scene.server.kinds, scene.server.prometheuses = set(MONITORING), ["k8s"]
    scene.poll()
    [found] = scene.found
    assert found.capabilities.monitoring
    assert [p.name for p in found.installed.prometheuses or ()] == ["k8s"]


def test_a_replica_that_does_not_lead_lists_neither_nodes_nor_prometheuses() -> None:
    scene = Scene(leads=False)
    scene.server.kinds = set(MONITORING)
    scene.poll()
    assert scene.subject.cluster().capabilities.monitoring
    assert scene.server.lists == []
    asyncio.run(scene.subject.prepare())
    assert set(scene.server.lists) == {NODES, PROMETHEUSES, NAMESPACES}


def test_waits_for_the_nodes_but_not_for_the_prometheuses() -> None:
    """A new Deployment keeps the delivery that it gets first, while monitoring is corrected at any time."""
    scene = Scene(leads=False)
    scene.server.kinds, scene.server.failing = set(MONITORING), {NODES, PROMETHEUSES}
    scene.poll()
    with pytest.raises(ApiError):
        asyncio.run(scene.subject.prepare())
    scene.server.failing = {PROMETHEUSES}
    asyncio.run(scene.subject.prepare())
    cluster = scene.subject.cluster()
    assert PROMETHEUSES in scene.server.lists
    assert cluster.delivery == "ImageVolume"
    assert not cluster.installed.answered
