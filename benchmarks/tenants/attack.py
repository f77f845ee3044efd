"""Attacks the operator as one tenant. Runs as a separate process that commands on stdin start and stop.

The tenant has Kubernetes' role `edit` and the role tritonmodel-developer in one namespace, and may create Prometheus
objects there. This module also plays the kubelet of the tenant's pods; its servers are in `servers.py`.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError

from support import gen
from support.api import Api, Object, RefusedError, eventually
from support.costs import many
from support.strange import Strange
from triton_operator.api import names
from triton_operator.render.children import KINDS

from . import servers

NAMESPACE = "tenant"
FLIPPING, LARGE, ROGUES = 5, 12, 20
SILENT = 200
"""Connections to the operator's metrics that send nothing."""
STRANGE_KEPT = 40
_SWEPT = [*(kind.kind for kind in KINDS), "TritonModel", "Pod", "Prometheus", "ConfigMap"]


def name(number: int) -> str:
    return f"hostile-{number:02}"


def hostile(number: int) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {
            "modelImage": {"reference": "registry.example.com/hostile:0"},
            "entrypoint": servers.ENTRY,
            "monitoring": {"labels": {"release": "prometheus"}},
        },
    }


def large(number: int) -> Object:
    """Returns a TritonModel with 0.9 MB in a field without a schema: many small objects, and deeply nested maps."""
    deep: Any = {}
    for _ in range(40):
        deep = {"a": deep}
    model = hostile(number)
    model["metadata"]["name"] = f"large-{number}"
    model["spec"]["podTemplate"] = {"spec": {"nodeSelector": {"a": [{}] * 290_000, "b": deep}}}
    return model


def rogue(number: int, port: int) -> Object:
    """Returns a Prometheus object that selects everything, with an address of the tenant's choice."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": f"rogue-{number}", "namespace": NAMESPACE},
        "spec": {
            "serviceName": f"127.0.0.1:{port}/latest/meta-data?x=",
            **{k: {} for k in ("ruleSelector", "podMonitorSelector")},
            **{k: {} for k in ("ruleNamespaceSelector", "podMonitorNamespaceSelector")},
        },
    }


class Attack:
    """Runs all attacks at once, between `begin` and `end`.

    `counts`: how many requests of each kind were sent, and how many were accepted.
    """

    def __init__(self, tenant: Api, node: Api, rogue_port: int, size: int, patches: float, seed: int) -> None:
        self._tenant, self._node, self._size, self._patches = tenant, node, size, patches
        self._rogue_port = rogue_port
        self._strange, self._random = Strange(seed, {}), random.Random(seed)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._created: list[tuple[str, str]] = []
        self._silent: deque[socket.socket] = deque()
        self._operator = ("127.0.0.1", 1)
        self.counts = Counter[str]()

    def aim(self, address: str) -> None:
        """Sets the address of the operator's metrics, which in a cluster without NetworkPolicies every pod reaches."""
        host, _, port = address.rpartition(":")
        self._operator = (host, int(port))

    def begin(self) -> None:
        """Starts the attack. Returns when all hostile TritonModels have pods, which the operator then probes."""
        self._stopped.clear()
        for number in range(self._size):
            eventually(lambda n=number: self._try("hostile", lambda: self._tenant.create(hostile(n))), 60, "to create")
        for number in range(self._size):
            eventually(lambda n=number: self._node.find("Deployment", name(n)), 120, "a Deployment")
            self._start(number)
        steps = {
            self._patch: 1 / self._patches, self._flip: 0.1, self._create_unusual: 0.3, self._create_large: 5.0,
            self._create_prometheus: 0.5, self._annotate: 2.0, self._flood: 0.02,
        }  # fmt: skip
        for step, seconds in steps.items():
            thread = threading.Thread(target=self._repeat, args=(step, seconds), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> None:
        """Stops the attack. Returns when all its objects are deleted."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
        self._threads.clear()
        self._created.clear()
        while self._silent:
            self._silent.pop().close()
        eventually(self._sweep, 300, "an empty namespace")

    def _start(self, number: int) -> None:
        """Creates the pod, like the ReplicaSet controller, and reports it as running, like the kubelet."""
        template = self._node.get("Deployment", name(number))["spec"]["template"]
        metadata = {**template["metadata"], "name": f"{name(number)}-pod"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._node.create({**pod, "metadata": {**metadata, "namespace": NAMESPACE}})
        self._status(number)

    def _status(self, number: int, *modifiers: gen.Modifier) -> None:
        report = gen.checked(gen.report("pre", servers.ENTRY, entrypoint=servers.ENTRY))
        status = gen.pod(report, gen.put("status.podIP", servers.address(number)), *modifiers)["status"]
        path = self._node.path("Pod", f"{name(number)}-pod")
        self._node.request("PUT", f"{path}/status", {**self._node.request("GET", path), "status": status})

    def _patch(self) -> None:
        number, value = self._random.randrange(self._size), self._random.randrange(10**9)
        patch = self._random.choice(
            [
                {"spec": {"modelImage": {"reference": f"registry.example.com/hostile:{value}"}}},
                {"spec": {"server": {"env": [{"name": f"V{n}", "value": f"{value}" * 50} for n in range(60)]}}},
                {"metadata": {"annotations": {"example.com/a": f"{value}" * 1000}, "labels": {"a": f"{value}"}}},
                {"spec": {"replicas": value % 3}},
            ]
        )
        self._try("patch", lambda: self._tenant.patch(names.KIND, name(number), patch))

    def _annotate(self) -> None:
        """Sends 208 KiB of annotations, which the policy refuses."""
        path = self._tenant.path(names.KIND, name(0)) + "?dryRun=All"
        content = "application/merge-patch+json"
        self._try("annotations", lambda: self._tenant.request("PATCH", path, many("annotations"), content))

    def _flood(self) -> None:
        """Opens a connection to the operator's metrics that sends nothing, and asks for them in another."""
        self._silent.append(socket.create_connection(self._operator, timeout=1))
        if len(self._silent) > SILENT:
            self._silent.popleft().close()
        self.counts["flood: sent"] += 1
        url = f"http://{self._operator[0]}:{self._operator[1]}/metrics"
        with urllib.request.urlopen(url, timeout=2) as answer:
            answer.read()
        self.counts["flood: accepted"] += 1

    def _flip(self) -> None:
        number = self._random.randrange(min(FLIPPING, self._size))
        killed = gen.ended("triton", 137, "x" * 2000, reason=self._random.choice(["OOMKilled", "Error"]))
        self._try("flip", lambda: self._status(number, *self._random.choice([(), (killed,)])))

    def _create_unusual(self) -> None:
        body, patch = self._strange.model()
        status = None
        if self._random.random() < 0.5:
            body, patch, status = self._strange.child()
        body["metadata"]["namespace"] = NAMESPACE

        def create() -> None:
            created = self._tenant.create(body)["metadata"]["name"]
            self._created.append((body["kind"], created))
            if patch is not None:
                self._tenant.patch(body["kind"], created, patch)
            if status is not None:
                self._node.patch(body["kind"], created, {"status": status}, "status")

        self._try("unusual", create)
        while len(self._created) > STRANGE_KEPT:
            kind, created = self._created.pop(0)
            self._try("delete", lambda k=kind, n=created: self._tenant.delete(k, n))

    def _create_large(self) -> None:
        number = self._random.randrange(LARGE)
        self._try("large", lambda: self._tenant.create(large(number)))

    def _create_prometheus(self) -> None:
        number = self._random.randrange(ROGUES)
        if self._random.random() < 0.5:
            self._tenant.delete("Prometheus", f"rogue-{number}")
        self._try("rogue Prometheus", lambda: self._tenant.create(rogue(number, self._rogue_port)))

    def _repeat(self, step: Callable[[], None], seconds: float) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            with contextlib.suppress(RefusedError, HTTPError, OSError):
                step()
            # Missed steps aren't caught up.
            due = max(due + seconds, time.monotonic())
            self._stopped.wait(due - time.monotonic())

    def _try(self, kind: str, request: Callable[[], object]) -> bool:
        self.counts[f"{kind}: sent"] += 1
        try:
            request()
        except RefusedError as refusal:
            return refusal.code == 409 and kind == "hostile"  # it exists already
        except (HTTPError, OSError):
            return False
        self.counts[f"{kind}: accepted"] += 1
        return True

    def _sweep(self) -> bool:
        """Deletes what is left in the namespace. Returns whether nothing was left."""
        left = 0
        for kind in _SWEPT:
            for leftover in self._node.list(kind):
                left += 1
                with contextlib.suppress(RefusedError):
                    if leftover["metadata"].get("finalizers"):
                        self._node.patch(kind, leftover["metadata"]["name"], {"metadata": {"finalizers": None}})
                    self._node.delete(kind, leftover["metadata"]["name"], gracePeriodSeconds=0)
        return not left


def main(tenant: str, node: str, rogue_port: str, size: str, patches: str, seed: str) -> int:
    """Reads commands and prints one line for each.

    `on` and `off` start and stop the attack, `counts` prints `counts`, and an address is that of the operator's
    metrics. `tenant`, `node`: kubeconfigs.
    """
    apis = (Api.of(Path(kubeconfig)).in_namespace(NAMESPACE) for kubeconfig in (tenant, node))
    attack = Attack(*apis, int(rogue_port), int(size), float(patches), int(seed))
    for line in map(str.strip, sys.stdin):
        match line:
            case "on":
                attack.begin()
            case "off":
                attack.end()
            case "counts":
                pass
            case address:
                attack.aim(address)
        print(json.dumps(attack.counts) if line == "counts" else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
