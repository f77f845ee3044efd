"""The one place where decisions and I/O meet: makes true what one TritonModel says. Reads from top to bottom."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from .api import kinds, names, secrets, thresholds
from .api.kinds import Kind
from .api.monitoring import Answer, Installed
from .api.status import TritonModelStatus
from .api.types import TritonModel
from .cluster.api import ApiError, KubernetesApi
from .cluster.monitoring import Monitoring
from .cluster.store import Store, controller, state
from .cluster.triton import Servers, all_ready
from .plan import Applied, Apply, Compared, Delete, Identity, plan, remember
from .render import Choices, choose, endpoint, render
from .status.assess import assess, entry, unreadable
from .status.conditions import pressing, transitions
from .status.load import THRESHOLD_INVALID
from .status.observation import Observation, Problem
from .status.pods import server
from .status.thresholds import changes

Object = dict[str, Any]
MODELS = Kind(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """`again`: whether something is on its way that no event will tell of. `after`: look again after so many
    seconds even so; None where events tell all. `written`: states of objects that the pass itself brought about."""

    again: bool = False
    after: float | None = None
    written: frozenset[str] = frozenset()


class Reconciler:
    """Makes TritonModels true, one at a time per key; different keys may run in different threads.

    `fresh` gives the choices for what isn't deployed yet. `served` says which of the optional kinds the cluster has.
    `on_threshold(kind, result)` is told of every threshold that was accepted or refused. `progress_seconds`: the steps
    on the way to Ready are written at most so often; 0 for each at once.
    """

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        servers: Servers,
        monitoring: Monitoring,
        fresh: Choices,
        served: Callable[[Kind], bool] = lambda _: True,
        on_threshold: Callable[[str, str], None] = lambda *_: None,
        progress_seconds: float = 5.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._store, self._servers, self._monitoring = api, store, servers, monitoring
        self._fresh, self._served, self._on_threshold, self._clock = fresh, served, on_threshold, clock
        self._progress = timedelta(seconds=progress_seconds)
        self._applied: dict[str, dict[Identity, Applied]] = {}
        self._alike: dict[str, dict[Identity, Compared]] = {}
        self._own: dict[str, set[str]] = {}
        self._written: dict[str, datetime] = {}

    def reconcile(self, key: str) -> Outcome:
        """One pass over the TritonModel `key` (namespace/name). Raises ApiError for what a retry may cure."""
        raw = self._store.model(key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            # Owner references take the children away, also while no operator runs.
            self._applied.pop(key, None)
            self._alike.pop(key, None)
            self._own.pop(key, None)
            self._written.pop(key, None)
            self._servers.forget(key)
            return Outcome()
        log = logging.LoggerAdapter(_log, {"key": key, "generation": raw["metadata"].get("generation")})
        self._own[key] = set()
        try:
            model = TritonModel.model_validate(raw)
        except ValidationError as error:
            self._write_unreadable(raw, error, log)
            return Outcome(again=True)

        before = _status(raw)
        live = self._store.children(key, model.metadata.uid)
        pods = self._store.of_kind(key, kinds.POD.kind)
        asked = thresholds.of(raw)
        limits = thresholds.effective_of(raw, asked)
        entrypoint, what = entry(model, pods, before)
        fresh = replace(
            self._fresh,
            # The rules of an ensemble are others: until it is known which it is, there are none.
            entrypoint=entrypoint if what else "",
            ensemble=what == "Ensemble",
            thresholds=limits,
            monitoring=self._served(kinds.PROMETHEUS_RULE) and self._served(kinds.POD_MONITOR),
        )
        choices = choose(model, _one(live, kinds.DEPLOYMENT), fresh)
        desired = render(model, choices)
        if not choices.entrypoint and model.spec.monitoring.enabled:
            # Alerts aren't taken away because another entry model isn't known yet, or doesn't exist.
            live = [obj for obj in live if obj["kind"] != kinds.PROMETHEUS_RULE.kind]
        steps = plan(desired, live, self._applied.setdefault(key, {}), self._alike.setdefault(key, {}))
        refused = self._execute(key, model, steps, log)

        pods = self._store.of_kind(key, kinds.POD.kind)
        servers = [one for pod in pods if (one := server(pod))]
        indexes = self._servers.indexes(key, servers)
        installed = self._monitoring.installed() if choices.monitoring and model.spec.monitoring.enabled else None
        children = self._store.children(key, model.metadata.uid)
        seen = Observation(
            template=_template(desired),
            delivery=choices.delivery,
            deployment=_one(children, kinds.DEPLOYMENT),
            pods=tuple(pods),
            indexes=indexes,
            refused=refused,
            autoscaler=_one(children, kinds.AUTOSCALER),
            asked=asked,
            thresholds=limits,
            installed=installed,
            has_rules=bool(choices.entrypoint),
            answer=self._answer(model, installed) if choices.entrypoint else None,
        )
        clock = self._clock()
        now = clock.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        status = assess(model, seen, endpoint(model), before, now)
        after = _look_again(model, status, now)
        if status != before:
            held = self._hold(key, before, clock)
            if held <= timedelta() or pressing(before, status):
                if self._write(raw, before, status, log):
                    after = 0.0
                self._written[key] = clock
            else:
                after = min(after or math.inf, held.total_seconds())
        answered = len(indexes) == len(servers) and all(all_ready(index) for index in indexes.values())
        return Outcome(bool(refused) or not answered, after, frozenset(self._own.pop(key)))

    def _hold(self, key: str, before: TritonModelStatus, clock: datetime) -> timedelta:
        """How long a status that nobody waits for is held back, so that the next step can be told along with it."""
        if not before.observed_generation:
            # What the controllers make of the new objects comes within moments.
            self._written.setdefault(key, clock - max(timedelta(), self._progress - _FIRST_STATUS))
        held = self._written.get(key, _LONG_AGO) + self._progress - clock
        # A clock that was set back holds back nothing.
        return held if held <= self._progress else timedelta()

    def _answer(self, model: TritonModel, installed: Installed | None) -> Answer | None:
        """What the Prometheus that evaluates this model's rules says; None where there is none to ask."""
        if installed is None:
            return None
        selecting = installed.selecting(model.monitoring_labels, model.namespace)
        url = self._monitoring.url or (selecting[0].url if selecting else "")
        counter = model.spec.monitoring.token_counter or ""
        return self._monitoring.ask(url, model.namespace, model.name, counter) if url else None

    def _execute(
        self, key: str, model: TritonModel, steps: Iterable[Apply | Delete], log: logging.LoggerAdapter[logging.Logger]
    ) -> dict[str, Problem]:
        """Does the writes. Refusals are returned, by kind, and don't keep the other objects from being written."""
        refused: dict[str, Problem] = {}
        foreign, hidden = "", secrets.values(model)
        for step in steps:
            obj = step.desired if isinstance(step, Apply) else step.live
            name = f"{obj['kind']} {obj['metadata']['name']}"
            if foreign and _account(obj) == foreign:
                # The account of that name is another's, and so are its rights.
                continue
            try:
                if isinstance(step, Delete):
                    self._delete(step.live)
                    log.info("deleted %s: no longer wanted", name)
                else:
                    self._apply(key, step)
                    log.info("applied %s: %s", name, step.why)
            except ApiError as refusal:
                # The API server's words have the values that it doesn't like, and go into logs and Events.
                error = ApiError(refusal.code, refusal.reason, secrets.hide(refusal.message, hidden))
                # An admission webhook that is down fails what it is for, and not what servers need.
                if error.transient and not kinds.of(dict(obj)).optional:
                    raise error from None
                log.warning("%s: %s", name, error.message)
                refused.setdefault(obj["kind"], self._refusal(model, obj, step.live, error))
                if obj["kind"] == kinds.SERVICE_ACCOUNT.kind and isinstance(step, Apply) and step.live is None:
                    foreign = obj["metadata"]["name"]
        return refused

    def _apply(self, key: str, step: Apply) -> None:
        kind = kinds.of(step.desired)
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
        self._own[key].add(state(answer))
        self._applied[key][(kind.kind, step.desired["metadata"]["name"])] = remember(step.desired, answer)

    def _delete(self, live: Any) -> None:
        metadata = live["metadata"]
        if not self._api.delete(kinds.of(live), metadata["namespace"], metadata["name"], metadata["uid"]):
            self._store.remove(live)

    def _refusal(self, model: TritonModel, obj: Any, live: Any, error: ApiError) -> Problem:
        """What a refused write means. A name that is taken may be by an object of ours that isn't known yet, and what
        is known may be gone: no watch tells of the end of what had lost its label."""
        name = f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if error.code == 404 and kinds.of(obj).optional:
            return Problem("CRDsMissing", f"the cluster no longer has the kind {obj['kind']}")
        if error.code != 409 and "metadata.uid" not in error.message:
            hint = _UNCHECKED.get(obj["kind"], "") if error.code in _ABOUT_CONTENT else ""
            return Problem("ApplyRefused", f"the API server refuses {name}: {error.message}{hint}")
        kind = kinds.of(obj)
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
        if owner is not None and owner["uid"] == model.metadata.uid:
            self._store.put(there)
            raise ApiError(0, "Stale", f"{name} was changed meanwhile") from error
        if owner is not None and owner["name"] == model.name:
            raise ApiError(0, "Stale", f"{name} of a deleted TritonModel of this name isn't gone yet") from error
        return Problem(
            "NameTaken",
            f"{name} exists and doesn't belong to this TritonModel, so it is left alone: rename the TritonModel, "
            "or delete that object",
        )

    def _write_unreadable(
        self, raw: Object, error: ValidationError, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """The schema in the cluster and the types here differ: what can't be read is told, and all else stays."""
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        ]
        log.error("the spec can't be read: %s", "; ".join(faults))
        before, now = _status(raw), self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")
        status = unreadable(before, faults, now, raw["metadata"].get("generation", 0))
        if status != before:
            self._write(raw, before, status, log)

    def _write(
        self,
        raw: Object,
        before: TritonModelStatus,
        status: TritonModelStatus,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> bool:
        """Whether the TritonModel was changed since it was read: the answer then has what no event tells any more."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {k: raw["metadata"][k] for k in ("name", "namespace")},
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        try:
            answer = self._api.apply(MODELS, body, raw["metadata"]["uid"], subresource="status")
        except ApiError as error:
            if error.code in (404, 409, 422) and not _still_there(self._api, raw):
                return False
            raise
        self._store.put(answer)
        self._own[f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"].add(state(answer))
        self._tell_thresholds(raw, before, status)
        for transition in transitions(before.conditions, status.conditions):
            log.info("%s: %s", transition.reason, transition.message)
            self._tell(raw, transition.kind, transition.reason, transition.message)
        return _asked(answer) != _asked(raw)

    def _tell_thresholds(self, raw: Object, before: TritonModelStatus, status: TritonModelStatus) -> None:
        """The record of who changed what lacks only the who: that is in the audit log (manifests/policies)."""
        key = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
        for change in changes(before.thresholds, status.thresholds):
            values = {"threshold": str(change.slot), "old": change.old, "new": change.new}
            _log.info("threshold changed: %s", change, extra={"key": key, **values})
            self._on_threshold(change.slot.kind, "accepted")
            if before.observed_generation:  # what it was created with is no change
                self._tell(raw, "Normal", "ThresholdChanged", str(change))
        told = {c.message for c in before.conditions if c.reason == THRESHOLD_INVALID}
        if not told & {c.message for c in status.conditions if c.reason == THRESHOLD_INVALID}:
            for wrong in thresholds.of(raw).wrong:
                _log.warning("threshold refused: %s", wrong.message, extra={"key": key, "threshold": wrong.source})
                self._on_threshold(wrong.slot.kind if wrong.slot else "unknown", "refused")

    def _tell(self, raw: Object, kind: str, reason: str, message: str) -> None:
        """Posts an Event. One that can't be posted is logged, never retried: the status says the same."""
        from_, metadata = self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"), raw["metadata"]
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
            "eventTime": from_,
            "reportingController": f"{names.GROUP}/{names.FIELD_MANAGER}",
            "reportingInstance": names.FIELD_MANAGER,
            "action": "Reconcile",
            "type": kind,
            "reason": reason,
            "note": message.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                **{k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion")},
            },
        }
        try:
            self._api.create(_EVENTS, metadata["namespace"], body)
        except ApiError as error:
            _log.warning("an Event could not be posted: %s", error.message)


_ABOUT_CONTENT = (400, 413, 422, 500)
_UNCHECKED = {
    kinds.DEPLOYMENT.kind: "; spec.podTemplate, spec.server.env and spec.server.resources get there as they are",
    kinds.AUTOSCALER.kind: "; spec.autoscaling.behavior gets there as it is",
    kinds.POD_MONITOR.kind: "; spec.monitoring.labels get there as they are",
    kinds.PROMETHEUS_RULE.kind: "; spec.monitoring.labels get there as they are",
}
"""Fields that the CRD doesn't know the inside of, by the kind that they become part of: the API server speaks of that
kind's fields, and not always of any."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_FIRST_STATUS = timedelta(seconds=1)
_NOTE_BYTES = 1024
_PROPAGATING_SECONDS, _UNKNOWN_SECONDS = 2.0, 60.0
_PATIENCE_SECONDS = 180
"""After this a change isn't on its way any more: something is broken, and asking often doesn't mend it."""


def _look_again(model: TritonModel, status: TritonModelStatus, now: str) -> float | None:
    """Seconds until what no event tells may have changed; None where nothing is open."""
    reasons = {c.reason for c in status.conditions}
    if "Propagating" in reasons:
        since = [t.since for t in status.thresholds]
        since += [c.last_transition_time or now for c in status.conditions if c.reason == "Propagating"]
        waited = datetime.fromisoformat(now) - datetime.fromisoformat(max(since))
        return _PROPAGATING_SECONDS if waited.total_seconds() < _PATIENCE_SECONDS else _UNKNOWN_SECONDS
    # Over Triton's API a model can be unloaded without anything in the cluster telling of it.
    explicit = model.spec.server.model_control == "explicit"
    unknown = {"PrometheusUnreachable", "TokenCounterMissing"}
    return _UNKNOWN_SECONDS if explicit or reasons & unknown else None


_EVENTS = Kind("events.k8s.io", "v1", "Event", "events")


def _asked(raw: Object) -> list[Any]:
    """What a TritonModel asks for, as far as it is needed to tell one state from another."""
    return [raw["metadata"].get(k) for k in ("generation", "annotations", "deletionTimestamp")]


def _account(obj: Any) -> str:
    """As whom the pods of a Deployment run; "" for other objects."""
    return str(obj.get("spec", {}).get("template", {}).get("spec", {}).get("serviceAccountName", ""))


def _status(raw: Object) -> TritonModelStatus:
    """The status as it is; empty where others have written one that can't be read."""
    try:
        return TritonModelStatus.model_validate(raw.get("status", {}))
    except ValidationError:
        return TritonModelStatus()


def _one(objects: Iterable[Object], kind: Kind) -> Object | None:
    return next((o for o in objects if o["kind"] == kind.kind), None)


def _template(desired: Iterable[Object]) -> str:
    deployment = next(o for o in desired if o["kind"] == kinds.DEPLOYMENT.kind)
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def _still_there(api: KubernetesApi, raw: Object) -> bool:
    try:
        now = api.get(MODELS, raw["metadata"]["namespace"], raw["metadata"]["name"])
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return bool(now["metadata"]["uid"] == raw["metadata"]["uid"])
