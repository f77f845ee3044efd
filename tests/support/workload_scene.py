"""A namespace with one TritonModel of several groups of servers, a kubelet, and the operator."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from triton_operator.api import names
from triton_operator.render.envoy_gateway import CONTROLLER

from . import gen, operator_process
from .api import Api, Object, condition, eventually
from .operator_process import Operator
from .workload import ENTRY, Kubelet

SOON = 60


def index(*versions: str, **reasons: str) -> bytes:
    """Returns an answer of Triton: the versions of the entrypoint that are loaded, and those that aren't."""
    ready = [{"name": ENTRY, "version": version, "state": "READY"} for version in versions]
    failed = [{"name": ENTRY, "version": v[1:], "state": "UNAVAILABLE", "reason": r} for v, r in reasons.items()]
    return json.dumps([{"name": "pre", "version": "1", "state": "READY"}, *ready, *failed]).encode()


class Scene:
    """The TritonModel gen.NAME in the namespace of `api`.

    - `hosts`: Deployment → the address of its servers.
    - `program`: of the operator; None for the shipped one.
    """

    def __init__(
        self, api: Api, folder: Path, kubeconfig: Path, hosts: Mapping[str, str], program: Path | None = None
    ) -> None:
        self.api, self._folder, self._kubeconfig, self.kubelet = api, folder, kubeconfig, Kubelet(api)
        self.kubelet.addresses |= hosts
        self.program = program

    def operator(self, **env: str) -> contextlib.AbstractContextManager[Operator]:
        """Runs the operator."""
        return operator_process.running(self._kubeconfig, self._folder, program=self.program, **env)

    @property
    def status(self) -> Object:
        status: Object = self.api.get("TritonModel", gen.NAME).get("status", {})
        return status

    def condition(self, kind: str) -> tuple[str, str]:
        found = condition(self.api.get("TritonModel", gen.NAME), kind)
        return found.get("status", ""), found.get("reason", "")

    def pods(self, group: str = "") -> list[Object]:
        """Returns the living pods of a group."""
        pods = self.api.list("Pod", names.as_query(names.selector(gen.NAME)))
        of_group = [p for p in pods if p["metadata"]["labels"].get(names.LABEL_GROUP, "") == group]
        return [p for p in of_group if "deletionTimestamp" not in p["metadata"]]

    def uids(self, group: str = "") -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods(group)}

    def image(self, deployment: str) -> str:
        return str(self.api.get("Deployment", deployment)["spec"]["template"]["spec"]["initContainers"])

    def accept_routes(self, gateway: Object) -> None:
        """Writes the status of the routes as Envoy Gateway does."""
        said = {
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **gateway}
        for kind, field, which in (
            ("HTTPRoute", "parents", "parentRef"), ("BackendTrafficPolicy", "ancestors", "ancestorRef"),
        ):  # fmt: skip
            eventually(lambda k=kind: self.api.find(k, gen.NAME), SOON)
            entry = {"controllerName": CONTROLLER, which: reference, "conditions": [said]}
            self.api.patch(kind, gen.NAME, {"status": {field: [entry]}}, "status")

    def complete(self, servers: int, operator: Operator) -> Object:
        """Waits until so many servers of all groups run the current spec, and returns the status."""

        def look() -> Object | None:
            model = self.api.get("TritonModel", gen.NAME)
            status = model.get("status", {})
            said = condition(model, "Progressing")
            told = (said.get("status"), said.get("reason")) == ("False", "Complete")
            same = status.get("replicas") == status.get("readyReplicas") == len(self.pods())
            # The servers answer a moment after they are ready.
            answering = next((m["pods"] for m in status.get("models", ()) if m["name"] == "pre"), "")
            return status if told and same and answering == f"{servers}/{servers}" else None

        return eventually(look, SOON, lambda: f"{self.status}\n{operator.log[-2000:]}")
