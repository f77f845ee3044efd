"""Brings a changed model image to the running servers, with rollout.strategy InPlace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names, secrets
from triton_operator.api.status import CHANGING_IMAGE, PROGRESSING, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store
from triton_operator.image_changes import Decision, Running, decide
from triton_operator.probe import Prober
from triton_operator.render import Choices, in_place, template_hash
from triton_operator.render.choices import REFERENCE
from triton_operator.status import image_change
from triton_operator.status import pods as of_pods
from triton_operator.status.observation import ImageChange

Object = dict[str, Any]
Log = logging.LoggerAdapter[logging.Logger]
_TEXT_MAX = 1000
_ATTEMPTS, _RETRY_SECONDS = 5, 1.0
_PULL_SECONDS = 1200
"""Time to pull and copy a model image, as in the progress deadline of a rollout."""


class ImageChanger:
    """Changes the model image of running servers. Safe to use from several threads, with one at a time for each key.

    All state is in the pods, so a new leader continues. `clock`: seconds since 1970.
    """

    def __init__(
        self, api: KubernetesApi, store: Store, prober: Prober, clock: Callable[[], float] = time.time
    ) -> None:
        self._api, self._store, self._prober, self._clock = api, store, prober, clock
        self._refusals: dict[str, tuple[str, int]] = {}

    def advance(self, model: TritonModel, choices: Choices, pods: Sequence[Object], log: Log) -> Decision:
        """Starts the next change of a server, records the ones that are done, and returns the decision.

        Never waits for a server.
        """
        if not model.is_in_place or choices.delivery != "Copy":
            return Decision()
        wanted, template = model.spec.model_image.reference, template_hash(model, choices)
        living = [pod for pod in pods if of_pods.alive(pod)]
        current = [pod for pod in living if of_pods.is_current(pod, template)]
        by_uid = {pod["metadata"]["uid"]: pod for pod in current}
        fallen = [pod for pod in pods if of_pods.finished(pod) and of_pods.is_current(pod, template)]
        decision = decide(list(map(_running, current)), wanted, self._clock(), list(map(_running, fallen)))
        for uid, reference in decision.record:
            if refusal := self._record(model, by_uid[uid], reference):
                decision = self._refused(model.key, wanted, decision, refusal)
        if not decision.left:
            self._refusals.pop(model.key, None)
        if decision.rollout or not (decision.left or choices.only == REFERENCE):
            return decision
        if why := _unsettled(living, current):
            return replace(decision, start=None, rollout=why)
        if decision.start is not None:
            uid, number = decision.start
            log.info("model image of %s: changing it to %s", by_uid[uid]["metadata"]["name"], wanted)
            if refusal := self._start(model, by_uid[uid], number):
                return self._refused(model.key, wanted, decision, refusal)
            self._refusals.pop(model.key, None)
        return decision

    def forget(self, key: str) -> None:
        """Forgets a deleted TritonModel."""
        self._refusals.pop(key, None)

    def _refused(self, key: str, wanted: str, decision: Decision, words: str) -> Decision:
        """Returns a decision to try again soon, or to replace the servers after some attempts.

        The API server may not know the newest TritonModel yet when it evaluates the policy, or the pod has changed.
        """
        before, count = self._refusals.get(key, ("", 0))
        count = count + 1 if before == wanted else 1
        self._refusals[key] = wanted, count
        if count < _ATTEMPTS:
            return replace(decision, start=None, wait=_RETRY_SECONDS)
        return replace(decision, start=None, rollout=words)

    def _start(self, model: TritonModel, pod: Object, number: int) -> str:
        """Adds the two ephemeral containers to the pod. Returns why the API server refuses that, or ""."""
        seconds = _PULL_SECONDS + model.spec.rollout.startup_seconds
        added = [
            in_place.files(model, number, seconds),
            in_place.change(model, number, image_change.tools_image(pod), int(self._clock()) + seconds),
        ]
        before = pod["spec"].get("ephemeralContainers") or []
        path = "/spec/ephemeralContainers"
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": pod["metadata"]["resourceVersion"]}
        steps: list[Object] = [{"op": "add", "path": f"{path}/-", "value": one} for one in added]
        if not before:
            steps = [{"op": "add", "path": path, "value": added}]
        return self._patch(pod, version, *steps, subresource="ephemeralcontainers")

    def _record(self, model: TritonModel, pod: Object, reference: str) -> str:
        """Writes the model image into the pod, whose container `fetch` copies it again after a restart of the node.

        Returns why the API server refuses that, or "".
        """
        found = pod["spec"]["initContainers"]
        index = next(k for k, one in enumerate(found) if one["name"] == names.CONTAINER_FETCH)
        path = f"/spec/initContainers/{index}"
        annotation = names.ANNOTATION_MODEL_IMAGE.replace("/", "~1")
        refusal = self._patch(
            pod,
            {"op": "replace", "path": f"/metadata/annotations/{annotation}", "value": reference},
            {"op": "test", "path": f"{path}/name", "value": names.CONTAINER_FETCH},
            {"op": "replace", "path": f"{path}/image", "value": reference},
        )
        self._prober.servers.refresh(model.key, pod["metadata"]["uid"])
        return refusal

    def _patch(self, pod: Object, *steps: Object, subresource: str = "") -> str:
        """Returns why the API server refuses the patch; "" if it doesn't, or if the pod is gone."""
        try:
            self._store.put(self._api.patch(pod, kinds.POD, *steps, subresource=subresource))
        except ApiError as error:
            if error.code in (403, 409, 422):
                return f"the API server refuses the change of {pod['metadata']['name']}: {error.message}"
            if error.code != 404:
                raise
        return ""


def replace_servers(model: TritonModel, decision: Decision) -> str:
    """Returns the field and the reason for which new servers are needed; "" if they aren't."""
    return f"{REFERENCE}: {secrets.redact(decision.rollout, secrets.values(model))}" if decision.rollout else ""


def reported(
    model: TritonModel,
    choices: Choices,
    decision: Decision,
    before: TritonModelStatus,
    rollout: str,
    *,
    switching: bool,
) -> ImageChange:
    """Returns the change for the status.

    - `rollout`: the field for which servers are being replaced, and why.
    - `switching`: whether the Deployment's template is getting the model image.
    """
    left = decision.left if not decision.rollout else 0
    changing = bool(left) or switching
    if not model.is_in_place:
        return ImageChange()
    if rollout.startswith(REFERENCE):
        return ImageChange(f"RollingUpdate: {rollout.removeprefix(f'{REFERENCE}: ')}"[:_TEXT_MAX])
    known = before.image.reference if before.image else ""
    if changing or decision.done or choices.only == REFERENCE:
        return ImageChange("InPlace", left, changing)
    # A change that had begun and that no server has got: the new spec's servers replace the changed ones.
    if choices.replicas and known and (_was_changing(before) or known != model.spec.model_image.reference):
        return ImageChange(
            "RollingUpdate: other fields of the spec have changed, too, or spec.podTemplate is too large to be compared"
        )
    return ImageChange((before.image.change if before.image else None) or "")


def is_switch(choices: Choices, before: TritonModelStatus) -> bool:
    """Returns whether a change of the Deployment's template is for the model image, and not for the list of models.

    When the template has the image and the Deployment is still paused, only the status tells them apart.
    """
    return choices.only == REFERENCE or (not choices.only and _was_changing(before))


def _was_changing(before: TritonModelStatus) -> bool:
    return any(c.type == PROGRESSING and c.reason == CHANGING_IMAGE for c in before.conditions)


def _running(pod: Object) -> Running:
    metadata = pod["metadata"]
    started = of_pods.server(pod) is not None
    ready = of_pods.is_ready(pod)
    return Running(metadata["uid"], metadata["name"], image_change.noted(pod), started, image_change.last(pod), ready)


def _unsettled(living: Sequence[Object], current: Sequence[Object]) -> str:
    """Returns why only new servers can get the model image; "" if the running ones can."""
    if len(living) > len(current):
        return "servers of the previous spec are still being replaced"
    for pod in current:
        if found := of_pods.problem(pod):
            return f"{pod['metadata']['name']} doesn't serve: {found.message}"
        if why := in_place.pod_obstacle(pod):
            return f"{pod['metadata']['name']}: {why}"
    return ""
