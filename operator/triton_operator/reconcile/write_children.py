"""Carries out what was planned for the objects of one TritonModel, and tells what a refusal means."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api import kinds, names, secrets
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store, controller, state
from triton_operator.plan import (
    Applied,
    Apply,
    Delete,
    Identity,
    applied_fields,
    clearance,
    handover,
    identity,
    remember,
)
from triton_operator.render import children
from triton_operator.status.observation import Problem

_ABOUT_CONTENT = (400, 413, 422, 500)


@dataclass
class Written:
    """What has become of the writes. `refused`: why, by kind. `states`: those of the objects that were applied.
    `forbidden`: whether one was refused with 403, by a lack of rights or by a quota."""

    refused: dict[str, Problem] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    forbidden: bool = False


class Children:
    """Writes the objects that TritonModels stand for. Safe to use from several threads, one a TritonModel."""

    def __init__(self, api: KubernetesApi, store: Store) -> None:
        self._api, self._store = api, store

    def write(
        self,
        model: TritonModel,
        steps: Iterable[Apply | Delete],
        applied: MutableMapping[Identity, Applied],
        blocked: Mapping[Identity, Problem],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> Written:
        """Takes the steps, in order, but not those on what is `blocked`. A refusal is told, and doesn't keep the other
        objects from being written; raises ApiError for what a retry may cure. What the API server makes of an apply is
        noted in `applied`."""
        written = Written()
        foreign, hidden = "", secrets.values(model)
        for step in steps:
            obj = step.desired if isinstance(step, Apply) else step.live
            name = f"{obj['kind']} {obj['metadata']['name']}"
            if foreign and _account(obj) == foreign:
                # The account of that name is another's, and so are its rights.
                continue
            if problem := blocked.get(identity(obj)):
                written.refused.setdefault(obj["kind"], problem)
                foreign = foreign or _own_account(obj)
                continue
            try:
                if isinstance(step, Delete):
                    self._delete(step.live)
                    log.info("deleted %s: no longer wanted", name)
                else:
                    answer = self._apply_or_adopt(step, log)
                    written.states.add(state(answer))
                    applied[identity(step.desired)] = remember(step.desired, answer)
                    log.info("applied %s: %s", name, step.why)
            except ApiError as refusal:
                # The API server's words have the values that it doesn't like, and go into logs and Events.
                error = ApiError(refusal.code, refusal.reason, secrets.hide(refusal.message, hidden))
                # An admission webhook that is down fails what it is for, and not what servers need.
                if error.transient and not children.of(obj).kind.optional:
                    raise error from None
                log.warning("%s: %s", name, error.message)
                written.forbidden = written.forbidden or error.code == 403
                written.refused.setdefault(obj["kind"], self._refusal(model, obj, step.live, error))
                if isinstance(step, Apply) and step.live is None:
                    foreign = foreign or _own_account(obj)
        return written

    def find_lost(self, model: TritonModel, desired: Iterable[dict[str, Any]]) -> bool:
        """Looks for what has lost its label, or is gone, and isn't `desired`; whether there is any. What is desired is
        found when it is made again. Raises ApiError for what a retry may cure."""
        found = False
        for kind, name in self._store.lost(model.key) - {identity(obj) for obj in desired}:
            try:
                there = self._api.get(children.BY_NAME[kind].kind, model.namespace, name)
            except ApiError as error:
                if error.transient:
                    raise
                if error.code == 404:
                    self._store.found(model.key, (kind, name))
                continue
            self._store.found(model.key, (kind, name))
            if controller(there) is not None:
                self._store.put(there)
                found = True
        return found

    def _apply_or_adopt(self, step: Apply, log: logging.LoggerAdapter[logging.Logger]) -> dict[str, Any]:
        """Applies; where the name is taken by an object of ours that has lost its owner reference, that one is used, as
        Kubernetes' controllers do it. The reference is in what is applied."""
        try:
            return self._apply(step)
        except ApiError as error:
            if step.live is not None or error.code != 409:
                raise
            desired = step.desired
            try:
                there = self._api.get(
                    children.of(desired).kind, desired["metadata"]["namespace"], desired["metadata"]["name"]
                )
            except ApiError:
                raise error from None
            if not _is_orphan(there, desired):
                raise
        why = "its owner reference was gone"
        answer = self._apply(Apply(desired, there, why, handover(desired, there), clearance(desired, there)))
        log.info("adopted %s %s: %s", desired["kind"], desired["metadata"]["name"], why)
        return answer

    def _apply(self, step: Apply) -> dict[str, Any]:
        kind = children.of(step.desired).kind
        if step.live is None:
            answer = self._api.apply_new(kind, step.desired)
        else:
            uid = step.live["metadata"]["uid"]
            if step.handover:
                self._api.apply(kind, step.handover, uid, manager=names.HANDOVER_MANAGER)
            if step.clearance:
                self._api.merge(kind, step.clearance, uid)
            answer = self._api.apply(kind, step.desired, uid)
        self._store.put(answer)
        return answer

    def _delete(self, live: Any) -> None:
        metadata = live["metadata"]
        if not self._api.delete(children.of(live).kind, metadata["namespace"], metadata["name"], metadata["uid"]):
            self._store.remove(live)

    def _refusal(self, model: TritonModel, obj: Any, live: Any, error: ApiError) -> Problem:
        """What a refused write means. A name that is taken may be by an object of ours that isn't known yet, and what
        is known may be gone: no watch tells of the end of what had lost its label."""
        name = f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if error.code == 404 and children.of(obj).kind.optional:
            return Problem("CRDsMissing", f"the cluster no longer has the kind {obj['kind']}")
        if error.code != 409 and "metadata.uid" not in error.message:
            unchecked = children.of(obj).unchecked
            hint = f"; {unchecked}" if unchecked and error.code in _ABOUT_CONTENT else ""
            return Problem("ApplyRefused", f"the API server refuses {name}: {error.message}{hint}")
        kind = children.of(obj).kind
        try:
            there = self._api.get(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        except ApiError as gone:
            if gone.code != 404:
                raise
            if live is not None:
                self._store.remove(live)
            raise ApiError(0, "Stale", f"{name} was deleted meanwhile") from error
        if live is not None and there["metadata"]["uid"] != live["metadata"]["uid"]:
            self._store.remove(live)
        owner = controller(there)
        if owner is not None and owner["name"] == model.name:
            # Also what a former TritonModel of this name has left: it is seen from now on, and taken away.
            self._store.put(there)
            raise ApiError(0, "Stale", f"{name} was changed meanwhile, or isn't gone yet") from error
        return Problem(
            "NameTaken",
            f"{name} exists and doesn't belong to this TritonModel, so it is left alone: rename the TritonModel, "
            "or delete that object",
        )


def _is_orphan(there: Any, desired: Any) -> bool:
    """Whether `there` is what the operator made under this name, and nobody's now: it has no controller and the labels
    of `desired`, and the operator has applied them. Labels alone anybody may set who creates an object; who can forge
    managedFields may write the object, and could set the owner reference as well."""
    metadata = there["metadata"]
    applied = applied_fields(there).get("f:metadata", {}).get("f:labels", {})
    labels = {key: desired["metadata"]["labels"][key] for key in names.labels("")}
    return (
        not kinds.ending(there)
        and not any(reference.get("controller") for reference in metadata.get("ownerReferences", ()))
        and all(metadata.get("labels", {}).get(key) == value for key, value in labels.items())
        and all(f"f:{key}" in applied for key in labels)
    )


def _account(obj: Any) -> str:
    """As whom the pods of a Deployment run; "" for other objects."""
    return str(obj.get("spec", {}).get("template", {}).get("spec", {}).get("serviceAccountName", ""))


def _own_account(obj: Any) -> str:
    """The name of a ServiceAccount; "" for other objects."""
    return str(obj["metadata"]["name"]) if obj["kind"] == kinds.SERVICE_ACCOUNT.kind else ""
