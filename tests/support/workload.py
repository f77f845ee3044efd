"""A random workload: creates, changes and deletes TritonModels, and writes the status of pods as a kubelet does."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

from urllib3.exceptions import HTTPError

from triton_operator.api import names, thresholds
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, choose, render
from triton_operator.render.facts import Capabilities

from . import gen
from .api import MIN_WAIT_SECONDS, Api, Object, RefusedError, eventually
from .operator_process import TOOLS_IMAGE

ENTRY = "detection"
BROKEN = (RefusedError, HTTPError, OSError)
"""The errors of requests during a fault."""


class Repeated:
    """Calls `step` repeatedly in a thread, with a pause of `seconds`. Retries after errors in BROKEN."""

    def __init__(self, step: Callable[[], None], seconds: float) -> None:
        self._step, self._seconds, self._over = step, seconds, threading.Event()
        self.count = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Repeated:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(2 * MIN_WAIT_SECONDS)
        assert not self._thread.is_alive(), f"a step doesn't end; {self.count} have ended"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._step()
                self.count += 1
            except BROKEN:
                continue
            except BaseException as error:
                self._error = error
                return


class Workload:
    """The TritonModels that users want in a namespace. `models` maps names to the last applied TritonModel.

    Every spec is different, so that a pod template that appears twice is an error.
    """

    def __init__(self, api: Api, seed: int, max_models: int = 6) -> None:
        self.api, self.seed, self._random, self._max_models = api, seed, random.Random(seed), max_models
        self.models: dict[str, Object] = {}
        self.templates: dict[str, int] = {}
        """The sequence number of every requested pod template, by its hash."""
        self._number = 0
        self.steps = {"create": 0, "change": 0, "delete": 0}

    def running(self, seconds: float = 0.15) -> Repeated:
        """Returns a context in which the workload runs."""
        return Repeated(self.step, seconds)

    def step(self) -> None:
        """Creates, changes or deletes a random TritonModel."""
        # A copy: the test may create TritonModels at the same time.
        models = sorted(n for n in list(self.models) if re.fullmatch(r"m-\d+", n))
        action = self._random.choices(("create", "change", "delete"), (3, 6, 2))[0]
        if not models or (action == "create" and len(models) < self._max_models):
            self.create(f"m-{self._random.randrange(2 * self._max_models)}")
        elif action == "delete" and len(models) > self._max_models // 2:
            self.delete(self._random.choice(models))
        else:
            self.change(self._random.choice(models))

    def create(self, name: str, **spec: object) -> None:
        """Creates or changes a TritonModel. `spec` is merged over a random one."""
        self.steps["create"] += 1
        self._apply(name, spec)

    def change(self, name: str) -> None:
        self.steps["change"] += 1
        self._apply(name)

    def delete(self, name: str) -> None:
        self.steps["delete"] += 1
        del self.models[name]
        self.api.delete("TritonModel", name)

    def finish(self) -> None:
        """Repeats writes that may have been lost during a fault, so that the API server has `models`."""

        def written() -> bool:
            try:
                for obj in self.models.values():
                    self.api.apply(obj, "users")
                for item in self.api.list("TritonModel"):
                    if item["metadata"]["name"] not in self.models:
                        self.api.delete("TritonModel", item["metadata"]["name"])
            except BROKEN:
                return False
            return True

        eventually(written, 60, "the API server accepts all writes")

    def _apply(self, name: str, spec: Object | None = None) -> None:
        self._number += 1
        obj = model(self.api.namespace, name, self._number, self._random)
        if spec:
            obj["spec"] = {k: v for k, v in obj["spec"].items() if k != "autoscaling"} | spec
        self.models[name] = obj
        self.templates[template_hash(obj)] = self._number
        self.api.apply(obj, "users")


def model(namespace: str, name: str, number: int, chance: random.Random) -> Object:
    """Returns a TritonModel as a user writes it. `number` makes its pod template unique."""
    spec: dict[str, Any] = {
        "modelImage": {"reference": f"registry.example.com/detection:v{number}"},
        "entrypoint": chance.choice((ENTRY, None)),
        "replicas": chance.choice((0, 1, 1, 2)),
        "monitoring": chance.choice(({}, {"labels": {"release": "prometheus"}}, {"enabled": False})),
        "server": {"resources": {"limits": {"memory": chance.choice(("1Gi", "2Gi"))}}},
    }
    if chance.random() < 0.25:
        spec |= {"replicas": None, "autoscaling": {"min": 1, "max": chance.randint(2, 4)}}
    annotations = {f"{thresholds.PREFIX}max-qps": str(chance.randint(1, 99))} if chance.random() < 0.5 else {}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {k: v for k, v in spec.items() if v is not None},
    }


def desired(raw: Object, live: Object | None = None, monitoring: bool = True) -> list[Object]:
    """Returns the desired children of the TritonModel `raw`. `live` is its Deployment."""
    resource = TritonModel.model_validate(raw)
    # In these tests every repository check reports the same repository. Without a pod there is no report and no rules.
    has_report = raw.get("status", {}).get("entrypointType") == "Ensemble"
    facts = Facts(
        TOOLS_IMAGE, "Copy", entrypoint=ENTRY if has_report else "", ensemble=True,
        thresholds=thresholds.effective_of(raw), cluster=Capabilities(monitoring=monitoring),
    )  # fmt: skip
    return render(resource, choose(resource, live, facts))


def template_hash(raw: Object) -> str:
    """Returns the hash of the pod template that a TritonModel requests."""
    resource = {**raw, "metadata": {**raw["metadata"], "uid": "any", "generation": 1, "resourceVersion": "1"}}
    (deployment,) = (o for o in desired(resource) if o["kind"] == "Deployment")
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


class Kubelet:
    """Writes the status of ready servers to the pods of a namespace, and ends interrupted deletions of pods.

    - `addresses`: pod IPs by Deployment; by default pods have none, so the operator sends them no requests
    - `statuses`: another status for the pods of these Deployments
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.addresses: dict[str, str] = {}
        self.statuses: dict[str, Object] = {}

    def running(self) -> Repeated:
        return Repeated(self.step, 0.25)

    def step(self) -> None:
        for pod in self._api.list("Pod", names.MANAGED_SELECTOR):
            metadata, status = pod["metadata"], pod["status"]
            if metadata.get("deletionGracePeriodSeconds") == 0:
                # An API server that is killed between the two writes of a deletion leaves the pod.
                self._api.delete("Pod", metadata["name"], gracePeriodSeconds=0)
                continue
            # A scheduler's condition says only that the pod has a node.
            begun = any((c["type"], c["status"]) != ("PodScheduled", "True") for c in status.get("conditions", ()))
            if "podIP" in status or begun or "deletionTimestamp" in metadata:
                continue
            labels = metadata["labels"]
            status = self._status(names.deployment(labels[names.LABEL_MODEL], labels.get(names.LABEL_GROUP, "")))
            self._api.request("PUT", self._api.path("Pod", metadata["name"]) + "/status", {**pod, "status": status})

    def _status(self, deployment: str) -> Object:
        report = gen.checked(gen.report("pre", ENTRY, entrypoint=ENTRY))
        serves = gen.pod(report, gen.put("status.podIP", self.addresses.get(deployment, "")))["status"]
        return self.statuses.get(deployment, serves)
