"""Measures the time from `apply` until a model answers, and how much of it the operator adds.

For each run with the operator there is one without it, which applies the objects that `kubectl triton render` prints.
The two alternate, so that other load on the machine affects both. The times are those of watch events.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import yaml

from support import cluster as clusters
from support.api import Api, Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.machine import machine
from triton_operator.api import names

TIMEOUT_SECONDS = 180
STEPS = {
    "deployment": "Deployment exists",
    "scheduled": "pod is scheduled",
    "pod_ready": "Triton answers (pod Ready)",
    "ready": "TritonModel Ready",
}


class Stopwatch:
    """Records when watches first show each step."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name
        self.seen: dict[str, float] = {}

    @contextmanager
    def running(self) -> Iterator[Stopwatch]:
        watched: dict[str, Callable[[Object], None]] = {
            "Deployment": lambda _: self._mark("deployment"),
            "Pod": self._pod,
            "TritonModel": lambda model: self._when(condition(model, "Ready"), "ready"),
        }
        for kind, handle in watched.items():
            # Only events from now on.
            version = self._api.request("GET", self._api.path(kind) + "?limit=1")["metadata"]["resourceVersion"]
            threading.Thread(target=self._watch, args=(kind, version, handle), daemon=True).start()
        time.sleep(0.5)  # time for the watches to connect
        yield self

    def _watch(self, kind: str, version: str, handle: Callable[[Object], None]) -> None:
        for _, event, obj in self._api.watch(kind, version=version, seconds=TIMEOUT_SECONDS):
            ours = obj["metadata"].get("labels", {}).get(names.LABEL_MODEL) == self._name
            if event != "DELETED" and (ours or (kind == "TritonModel" and obj["metadata"]["name"] == self._name)):
                handle(obj)

    def _pod(self, pod: Object) -> None:
        self._when(condition(pod, "PodScheduled"), "scheduled")
        self._when(condition(pod, "Ready"), "pod_ready")

    def _when(self, reported: Object, step: str) -> None:
        if reported.get("status") == "True":
            self._mark(step)

    def _mark(self, step: str) -> None:
        self.seen.setdefault(step, time.monotonic())


def timed(namespace: Namespace, name: str, objects: list[Object], last: str) -> dict[str, float]:
    """Applies the objects, waits for the step `last`, and deletes them. Returns the seconds until each step."""
    with Stopwatch(namespace.api, name).running() as watch:
        start = time.monotonic()
        for obj in objects:
            namespace.api.apply(obj, manager="benchmark")
        eventually(
            lambda: last in watch.seen,
            TIMEOUT_SECONDS,
            lambda: f"{last}; {namespace.conditions_text(name)}",
            every=0.05,
        )
    for obj in objects:
        namespace.api.delete(obj["kind"], obj["metadata"]["name"])
    mine = names.as_query(names.selector(name))
    kinds = ("Pod", "Deployment", "ReplicaSet", "Service", "ServiceAccount")
    eventually(lambda: not any(namespace.api.list(kind, mine) for kind in kinds), 60, "the run's objects are deleted")
    time.sleep(2)  # time for the kubelet to clean up after the pod
    return {step: at - start for step, at in watch.seen.items()}


def rendered(cluster: Cluster, model: Object, delivery: str) -> list[Object]:
    """Returns the children that `kubectl triton render` prints for the model, without owner references."""
    command = [ROOT / ".venv" / "bin" / "kubectl-triton", "render", "-", f"--delivery={delivery}"]
    command += [f"--tools-image={cluster.operator_image}"]
    out = subprocess.run(command, input=yaml.safe_dump(model), capture_output=True, text=True, check=True).stdout
    objects: list[Object] = list(yaml.safe_load_all(out))
    for obj in objects:
        obj["metadata"].pop("ownerReferences", None)
    return objects


def named(model: Object, name: str) -> Object:
    return {**model, "metadata": {**model["metadata"], "name": name}}


def spread(values: list[float]) -> str:
    return f"{median(values):6.2f}   {min(values):.2f} to {max(values):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="time_to_ready", description=__doc__)
    parser.add_argument(
        "--runs",
        type=int,
        default=int(os.environ.get("RUNS", "7")),
        help="number of runs with and without the operator",
    )
    runs = parser.parse_args().runs
    cluster = clusters.ensure()
    image = cluster.image("echo", "v1")
    with_operator: list[dict[str, float]] = []
    plain: list[dict[str, float]] = []
    with cluster.namespace(f"time-to-ready-{uuid.uuid4().hex[:5]}") as namespace:
        model = namespace.model("warm", image, rollout={"drainSeconds": 0, "exitSeconds": 1})
        namespace.api.apply(model)
        status = namespace.wait_until_complete("warm")["status"]  # now the images are on the node
        namespace.api.delete("TritonModel", "warm")
        for number in range(1, runs + 1):
            name, twin = f"operator-{number}", f"plain-{number}"
            objects = rendered(cluster, named(model, twin), status["image"]["delivery"])
            turns = [
                lambda name=name: with_operator.append(timed(namespace, name, [named(model, name)], "ready")),
                lambda twin=twin, objects=objects: plain.append(timed(namespace, twin, objects, "pod_ready")),
            ]
            # Alternate the order, because the first one runs while the node still cleans up.
            for turn in turns if number % 2 else reversed(turns):
                turn()
            both = with_operator[-1]["ready"], plain[-1]["pod_ready"]
            print(f"run {number}/{runs}: operator {both[0]:.2f} s, plain {both[1]:.2f} s", file=sys.stderr, flush=True)
        version = cluster.api.request("GET", "/version")["gitVersion"]

    print(f"Seconds from apply until …{'':14}median   range")
    for step, words in STEPS.items():
        print(f"  operator: {words:27} {spread([run[step] for run in with_operator])}")
    for step in ("deployment", "scheduled", "pod_ready"):
        print(f"  plain:    {STEPS[step]:27} {spread([run[step] for run in plain])}")
    added = median(run["ready"] for run in with_operator) - median(run["pod_ready"] for run in plain)
    print(f"The operator adds {added:.2f} s. The TritonModel is Ready ", end="")
    print(f"{median(run['ready'] - run['pod_ready'] for run in with_operator):.2f} s after its pod.")
    conditions = {
        "machine": machine(),
        "kubernetes": version,
        "node_image": os.environ["KIND_NODE_IMAGE"],
        "operator_image": cluster.operator_image,
        "server_image": cluster.server_image,
        "model": "echo: one Python model that returns its input, 1 replica, images on the node",
        "delivery": status["image"]["delivery"],
        "runs_of_each": runs,
        "applied_by": "one server-side apply request per object, from Python, without the start of a process",
    }
    figures = {
        "apply_to_deployment_s": round(median(run["deployment"] for run in with_operator), 3),
        "operator_added_s": round(added, 3),
        "apply_to_ready_s": round(median(run["ready"] for run in with_operator), 3),
        "plain_apply_to_ready_s": round(median(run["pod_ready"] for run in plain), 3),
        "conditions": conditions,
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
