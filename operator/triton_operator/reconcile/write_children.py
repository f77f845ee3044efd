"""Executes the plan for the children of one TritonModel, and explains refused writes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from triton_operator import engines
from triton_operator.api import kinds, kubernetes_versions, names, secrets
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.objects import controller, state
from triton_operator.cluster.store import Store
from triton_operator.decisions.contests import HeldBack
from triton_operator.decisions.outcome import Outcome
from triton_operator.plan import (
    Apply,
    Delete,
    Identity,
    applied_record,
    changed_by,
    handover,
    identity,
    is_orphan,
    port_cleanup,
)
from triton_operator.pods import Problem
from triton_operator.render import children, load_models, newer_fields

from .lacking import Lacking
from .refusals import refuse

_ABOUT_CONTENT = (400, 413, 422, 500)
_TAKEN = "NameTaken"


class ChildWriter:
    """Writes the children of TritonModels. Safe to use from several threads, with one thread at a time for each key."""

    def __init__(self, api: KubernetesApi, store: Store, lacking: Lacking) -> None:
        self._api, self._store, self._lacking = api, store, lacking

    def write(
        self,
        model: TritonModel,
        steps: Iterable[Apply | Delete],
        held: Iterable[HeldBack],
        outcome: Outcome,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """Executes the steps in order, except for `outcome.blocked` objects. `held`: those that aren't made now.

        A write that is refused, or fails, stops only what depends on it: no pod may run as an account that belongs to
        others, or without its NetworkPolicy, and no Service may select the pods of a Deployment that belongs to others.
        Records the API server's answers to applies in the outcome. Raises ApiError if the API server doesn't answer.
        """
        missing = {identity(one.step.desired) for one in held if one.step.live is None}
        has_foreign_deployment = False
        for step in steps:
            obj = step.desired if isinstance(step, Apply) else step.live
            name = f"{obj['kind']} {obj['metadata']['name']}"
            if missing & _needs(model, obj) or (has_foreign_deployment and obj["kind"] == kinds.SERVICE.kind):
                continue
            if problem := outcome.blocked.get(identity(obj)):
                outcome.refused.setdefault(obj["kind"], problem)
                missing.add(identity(obj))
                continue
            try:
                if isinstance(step, Delete):
                    self._delete(step.live)
                    log.info("deleted %s: no longer desired", name)
                else:
                    answer, sent = self._apply_known(step, outcome, log)
                    outcome.states.add(state(answer))
                    outcome.applied[identity(sent)] = applied_record(sent, answer)
                    log.info("applied %s: %s", name, step.why)
            except ApiError as refusal:
                # The API server quotes refused values. They may be secret, and the message goes to logs and Events.
                error = ApiError(refusal.code, refusal.reason, secrets.redact(refusal.message, outcome.hidden))
                log.warning("%s: %s", name, error.message)
                problem = self._refuse(model, obj, step.live, error, outcome)
                if isinstance(step, Apply) and (step.live is None or _adds_list(step)):
                    missing.add(identity(obj))
                    if identity(obj) == (kinds.DEPLOYMENT.kind, model.name):
                        has_foreign_deployment = problem is not None and problem.reason == _TAKEN
            except Exception as error:
                log.exception("the operator failed to write %s", name)
                outcome.fail(f"to write {name}", error, obj["kind"])
                missing.add(identity(obj))

    def _refuse(self, model: TritonModel, obj: Any, live: Any, error: ApiError, outcome: Outcome) -> Problem | None:
        """Records a refused write with its reason, and returns that. Raises ApiError without an answer."""
        try:
            problem = None if error.unanswered else self._refusal(model, obj, live, error, outcome.kubernetes)
        except ApiError as later:
            problem, error = None, later
        if problem is not None:
            outcome.refused.setdefault(obj["kind"], problem)
        name = f"{obj['kind']} {obj['metadata']['name']}"
        refuse(outcome, obj["kind"], error, f"the API server refuses {name}: {error.message}")
        return problem

    def name_writers(
        self, held: Iterable[HeldBack], outcome: Outcome, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """Reads who has changed the fields that aren't set back now. The store has no fields of other managers."""
        for one in held:
            step = one.step
            if one.contest.path is not None or step.live is None:
                continue
            metadata, kind = step.desired["metadata"], children.of(step.desired).kind
            try:
                there = self._api.get(kind, metadata["namespace"], metadata["name"])
            except ApiError as error:
                log.info("can't read who changes %s %s: %s", kind.kind, metadata["name"], error.message)
                continue
            outcome.writers[one.place] = changed_by(step.desired, there, one.place[1])

    def read_lost(self, model: TritonModel, lost: Iterable[Identity], outcome: Outcome) -> None:
        """Reads objects that have lost their label. What still belongs to the TritonModel is for the next reconcile.

        Raises ApiError if the API server doesn't answer.
        """
        for kind, name in lost:
            try:
                there = self._api.get(children.BY_NAME[kind].kind, model.namespace, name)
            except ApiError as error:
                if error.code == 404:
                    self._store.unmark_lost(model.key, (kind, name))
                elif error.transient:
                    refuse(outcome, kind, error, f"the API server can't read {kind} {name}: {error.message}")
                continue
            self._store.unmark_lost(model.key, (kind, name))
            if controller(there) is not None:
                self._store.put(there)
                outcome.reconcile_after(0)

    def _apply_known(
        self, step: Apply, outcome: Outcome, log: logging.LoggerAdapter[logging.Logger]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Applies the object without fields that the cluster doesn't know and that it can do without.

        Returns the answer and what was sent.
        """
        child = children.of(step.desired)
        while True:
            try:
                return self._apply_or_adopt(step, log), step.desired
            except ApiError as error:
                paths = newer_fields.dispensable(child, error.message)
                desired, left_out = newer_fields.without(step.desired, newer_fields.known(child, paths))
                if not left_out:
                    raise
                kind = child.kind.kind
                of_crd = f"'s CRD of {kind}" if child.kind.optional else ""
                log.info("this cluster%s %s", of_crd, ", ".join(sorted(field.why for field in left_out)))
                self._lacking.add(kind, paths)
                outcome.left_out[kind] = (*outcome.left_out.get(kind, ()), *left_out)
                step = replace(step, desired=desired)

    def _apply_or_adopt(self, step: Apply, log: logging.LoggerAdapter[logging.Logger]) -> dict[str, Any]:
        """Applies the object.

        If one of our objects without its owner reference has the name, adopts that object, as Kubernetes' controllers
        do.
        """
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
            if not is_orphan(there, desired["metadata"]["labels"][names.LABEL_MODEL]):
                raise
        self._check_owner(desired)
        why = "its owner reference was missing"
        answer = self._apply(Apply(desired, there, why, handover(desired, there), port_cleanup(desired, there)))
        log.info("adopted %s %s: %s", desired["kind"], desired["metadata"]["name"], why)
        return answer

    def _check_owner(self, desired: dict[str, Any]) -> None:
        """Raises ApiError (Stale) if the TritonModel is being deleted or doesn't exist, and no watch has reported it.

        A deletion that orphans the children also removes their owner references. If the operator set one again, the
        garbage collector would delete the child. Kubernetes' controllers check this before an adoption, too.
        """
        metadata = desired["metadata"]
        (owner,) = metadata["ownerReferences"]
        gone = ApiError(0, "Stale", f"{metadata['namespace']}/{owner['name']} was deleted in the meantime")
        try:
            there = self._api.get(kinds.TRITON_MODEL, metadata["namespace"], owner["name"])
        except ApiError as error:
            raise (gone if error.code == 404 else error) from None
        if kinds.is_deleting(there) or there["metadata"]["uid"] != owner["uid"]:
            raise gone

    def _apply(self, step: Apply) -> dict[str, Any]:
        kind = children.of(step.desired).kind
        if step.live is None:
            answer = self._api.apply_new(kind, step.desired)
        else:
            uid = step.live["metadata"]["uid"]
            if step.handover:
                self._api.apply(kind, step.handover, uid, manager=names.HANDOVER_MANAGER)
            if step.port_cleanup:
                self._api.merge(kind, step.port_cleanup, uid)
            answer = self._api.apply(kind, step.desired, uid)
        self._store.put(answer)
        return answer

    def _delete(self, live: Any) -> None:
        metadata = live["metadata"]
        if not self._api.delete(children.of(live).kind, metadata["namespace"], metadata["name"], metadata["uid"]):
            self._store.remove(live)

    def _refusal(
        self, model: TritonModel, obj: Any, live: Any, error: ApiError, kubernetes: tuple[int, int]
    ) -> Problem:
        """Returns the problem to report for a refused write.

        Raises ApiError (Stale) if the store was out of date: an object of ours was created or deleted and no watch has
        reported it yet.
        """
        name = f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if error.code == 404 and children.of(obj).kind.optional:
            return Problem("CRDsMissing", f"the cluster no longer has the kind {obj['kind']}")
        if error.code != 409 and "metadata.uid" not in error.message:
            hint = _hint(obj, error, kubernetes) if error.code in _ABOUT_CONTENT else ""
            return Problem("ApplyRefused", f"the API server refuses {name}: {error.message}{hint}")
        kind = children.of(obj).kind
        try:
            there = self._api.get(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        except ApiError as gone:
            if gone.code != 404:
                raise
            if live is not None:
                self._store.remove(live)
            raise ApiError(0, "Stale", f"{name} was deleted in the meantime") from error
        if live is not None and there["metadata"]["uid"] != live["metadata"]["uid"]:
            self._store.remove(live)
        owner = controller(there)
        if owner is not None and owner["name"] == model.name:
            # It may also be a leftover of a deleted TritonModel. The next reconcile finds it in the store.
            self._store.put(there)
            raise ApiError(0, "Stale", f"{name} was changed in the meantime, or isn't deleted yet") from error
        for scaler in engines.SCALERS:
            if scaler.owner and controller(there, scaler.kind) is not None:
                why = f"{name} belongs to {scaler.owner} and isn't deleted yet; the number of servers stays"
                return Problem(scaler.waiting, why)
        return Problem(
            _TAKEN,
            f"{name} exists and doesn't belong to this TritonModel, so the operator doesn't change it: rename the "
            "TritonModel, or delete that object",
        )


def _hint(obj: Any, error: ApiError, kubernetes: tuple[int, int]) -> str:
    """Returns what may be the cause of a refused content, and where to look."""
    child, paths = children.of(obj), newer_fields.undeclared(error.message)
    schema = f"this cluster's CRD of {obj['kind']}" if child.kind.optional else kubernetes_versions.cluster(kubernetes)
    unknown = f"{schema} doesn't know this field" if paths else ""
    if needed := [field.since for field in newer_fields.known(child, paths) if not field.is_dispensable]:
        unknown += f": {' and '.join(dict.fromkeys(needed))} and later have it"
    of_user = not paths or any(path.startswith(child.copied) for path in paths)
    return "".join(f"; {hint}" for hint in (unknown, child.unchecked if of_user else "") if hint)


def _adds_list(step: Apply) -> bool:
    """Returns whether the object gets a list of models for a new pod template."""
    return step.desired["kind"] == kinds.CONFIG_MAP.kind and not (
        step.desired["data"].keys() <= ((step.live or {}).get("data") or {}).keys()
    )


def _needs(model: TritonModel, obj: Any) -> set[Identity]:
    """Returns the objects without which pods must not start; none for what isn't a Deployment."""
    if obj["kind"] != kinds.DEPLOYMENT.kind:
        return set()
    name, pod_spec = model.name, obj["spec"]["template"]["spec"]
    needed = {
        (kinds.NETWORK_POLICY.kind, name),
        (kinds.SERVICE_ACCOUNT.kind, str(pod_spec.get("serviceAccountName", ""))),
    }
    # A ConfigMap of others with its name would decide which models the servers load.
    return {*needed, (kinds.CONFIG_MAP.kind, names.account(name))} if load_models.key_of(pod_spec) else needed
