"""Brings a change of spec.server.loadModels to the running servers, and to the servers that start later."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names, secrets
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store, controller
from triton_operator.model_changes import Behind, Decision, decide, same
from triton_operator.plan import applied_fields
from triton_operator.probe import Prober
from triton_operator.render import Choices, in_place, load_models, selector, template_hash
from triton_operator.render.choices import LOAD_MODELS
from triton_operator.status import pods as of_pods
from triton_operator.status.observation import ModelsChange

Object = dict[str, Any]
Log = logging.LoggerAdapter[logging.Logger]
POLL_SECONDS = 0.5
"""Seconds between two steps of `switch`."""
_REVISION = "deployment.kubernetes.io/revision"


class ModelChanger:
    """Changes the models of running servers. Safe to use from several threads, with one at a time for each key."""

    def __init__(self, api: KubernetesApi, store: Store, prober: Prober) -> None:
        self._api, self._store, self._prober = api, store, prober

    def advance(self, model: TritonModel, choices: Choices, pods: Iterable[Object], log: Log) -> Decision:
        """Starts the next change of a server, notes the ones that are done, and returns the decision.

        Servers of another pod template are about to be replaced. Never waits for a server.
        """
        if not model.is_explicit or not model.spec.entrypoint:
            self._prober.changes.forget(model.key)
            return Decision()
        template = template_hash(model, choices)
        wanted = tuple(model.spec.server.load_models)
        current = [(pod, one) for pod in pods if of_pods.is_current(pod, template) and (one := of_pods.server(pod))]
        noted = [(server, of_pods.models(pod)) for pod, server in current]
        behind = [Behind(server, *note) for server, note in noted if note[1] or not same(note[0], wanted)]
        outcomes = self._prober.changes.outcomes(model.key, wanted, [server for _, server in current])
        if not behind:
            return Decision()
        decision = decide(behind, outcomes, wanted, model.spec.entrypoint, float(model.spec.rollout.startup_seconds))
        by_uid = {server.uid: pod for pod, server in current}
        for server, sure, perhaps in decision.record:
            self._note(by_uid[server.uid], sure, perhaps)
        if decision.start is not None:
            server, change = decision.start
            if server.uid not in outcomes:
                log.info("models of %s: load %s, then unload %s", server.pod, list(change.load), list(change.unload))
            self._prober.changes.start(model.key, server, change, wanted)
        if decision.rollout and choices.only != LOAD_MODELS:
            # A server that restarted in its pod. The Deployment has the models already, so nothing is rolled out.
            return replace(decision, rollout="", failure=decision.rollout, refused=True)
        return decision

    def _note(self, pod: Object, sure: Sequence[str], perhaps: Sequence[str]) -> None:
        """Notes on the pod which models its server has, and perhaps has."""
        metadata = pod["metadata"]
        note = {names.ANNOTATION_MODELS: of_pods.models_note(pod, sure, perhaps)}
        body = {"metadata": {"namespace": metadata["namespace"], "name": metadata["name"], "annotations": note}}
        try:
            self._store.put(self._api.merge(kinds.POD, body, metadata["uid"]))
        except ApiError as error:
            if error.code not in (404, 409, 422):  # otherwise the pod is gone
                raise


def switch(
    api: KubernetesApi, model: TritonModel, choices: Choices, desired: Iterable[Object], live: Object | None
) -> bool:
    """Changes the models or the model image in a Deployment's template without new servers.

    Returns whether another step follows.
    The Deployment is paused with the new template, then its ReplicaSet gets the same template, and then the pause ends.
    So the Deployment has a ReplicaSet with its template and starts no rollout. Each step waits until
    kube-controller-manager has seen the one before. A new leader goes on from any step. Adds the pause to `desired`.
    """
    want = next(obj for obj in desired if obj["kind"] == kinds.DEPLOYMENT.kind)
    if live is None or not model.is_explicit or _hash(want) != _hash(live):
        return False
    paused = "f:paused" in applied_fields(live).get("f:spec", {})
    changed = _changeable(live) != _changeable(want)
    if not changed and not paused:
        return False
    if changed or not _observed(live):
        want["spec"]["paused"] = True
        return True
    found = api.list(kinds.REPLICA_SET, model.namespace, names.as_query(selector(model, choices)))
    newest = max(
        (one for one in found if (controller(one, kinds.DEPLOYMENT) or {}).get("uid") == live["metadata"]["uid"]),
        key=_revision,
        default=None,
    )
    if newest is None or _hash(newest) != _hash(live):
        return False
    if _changeable(newest) != _changeable(live):
        template = live["spec"]["template"]
        labels = {**template["metadata"]["labels"], **_template_hash(newest)}
        value = {**template, "metadata": {**template["metadata"], "labels": labels}}
        api.patch(newest, kinds.REPLICA_SET, {"op": "replace", "path": "/spec/template", "value": value})
    elif _observed(newest):
        return False
    want["spec"]["paused"] = True
    return True


def _hash(obj: Object) -> str:
    return str(obj["spec"]["template"]["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE, ""))


def _changeable(obj: Object) -> tuple[tuple[str, ...], str]:
    """Returns what changes in the pod template without new servers: the models, and with InPlace the model image."""
    template = obj["spec"]["template"]
    return load_models.listed(template["spec"]), in_place.reference(template["metadata"])


def _template_hash(replica_set: Object) -> dict[str, str]:
    label = "pod-template-hash"
    labels = replica_set["spec"]["template"]["metadata"].get("labels", {})
    return {label: labels[label]} if label in labels else {}


def _revision(replica_set: Object) -> int:
    text = replica_set["metadata"].get("annotations", {}).get(_REVISION, "")
    return int(text) if text.isdecimal() else 0


def _observed(obj: Object) -> bool:
    """Returns whether the object's controller has seen its newest version."""
    seen: int = obj.get("status", {}).get("observedGeneration", 0)
    return bool(seen >= obj["metadata"].get("generation", 0))


def replace_servers(model: TritonModel, decision: Decision) -> str:
    """Returns the field and the reason for which new servers are needed; "" if they aren't."""
    return f"{LOAD_MODELS}: {secrets.redact(decision.rollout, secrets.values(model))}" if decision.rollout else ""


def reported(model: TritonModel, decision: Decision, *, switching: bool) -> ModelsChange | None:
    """Returns the change for the status; None if there is none."""
    if not decision.left and not switching:
        return None
    failure = secrets.redact(decision.failure, secrets.values(model)) if decision.failure else ""
    return ModelsChange(decision.left, failure, decision.refused)
