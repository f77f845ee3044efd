"""Compares desired objects with live ones, and plans the writes. Pure.

Leaves out writes that would change nothing. A write changes nothing if the live object has every desired value, and if
managedFields shows that the operator owns no other field. Ignores fields of other managers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import orjson

from .api import names, quantity
from .api.kinds import SERVICE, is_deleting
from .api.lists import LIST_KEYS, key_of
from .engines import SCALERS

Object = Mapping[str, Any]
Identity = tuple[str, str]
"""(kind, name). The namespace is the TritonModel's."""

_SCALERS = frozenset(scaler.kind.kind for scaler in SCALERS)
_KEYS = {**LIST_KEYS, "ownerReferences": ("uid",)}
_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "limits", "requests", "overhead"})
"""Fields that the API server drops if they are empty. In another field {} can have a meaning of its own: an empty
namespaceSelector selects all namespaces."""
_HASHED = ".spec.template."
"""The pod template. An annotation has its hash, so no change of it stays unnoticed."""
_MAX_DROPPED = 16
"""How many of the fields that the API server drops are recorded."""
_ADDED = {"protocol": "TCP", "action": "replace"}
"""Values that the API server adds to the items of lists that it replaces as a whole."""


@dataclass(frozen=True)
class Apply:
    """Apply `desired`. `live` is the current object; None if there is none.

    - `handover`: applied first, by another field manager, to keep the value of a field that the operator stops writing.
    - `port_cleanup`: merged first, to remove values of others that conflict with ours.
    """

    desired: dict[str, Any]
    live: Object | None
    why: str
    handover: dict[str, Any] | None = None
    port_cleanup: dict[str, Any] | None = None


@dataclass(frozen=True)
class Delete:
    """Delete `live`, which the TritonModel no longer needs."""

    live: Object


@dataclass(frozen=True)
class Applied:
    """What was sent in an apply and how the API server stored it, such as a normalised quantity.

    Only hashes are kept, to save memory.

    `dropped`: the paths of the first fields that the API server didn't store.
    """

    uid: str
    intent: bytes
    projection: bytes
    dropped: tuple[str, ...] = ()


Compared = tuple[str, str, bytes]
"""uid and resourceVersion of a live object, and the hash of the desired one."""


class Plan(NamedTuple):
    """The writes, in order, and the objects that were found to be as desired, now or earlier."""

    writes: tuple[Apply | Delete, ...]
    unchanged: Mapping[Identity, Compared]


def plan(
    desired: Iterable[dict[str, Any]],
    live: Iterable[Object],
    applied: Mapping[Identity, Applied],
    unchanged: Mapping[Identity, Compared] = MappingProxyType({}),
) -> Plan:
    """Returns the writes that turn `live` (all objects that the TritonModel owns) into `desired`.

    An object that is being deleted is skipped until it is gone. So is a scaler while one of another kind exists.
    `unchanged`: the objects that an earlier plan has found to be as desired, to save the comparison.
    """
    found: dict[Identity, Compared] = {}
    present = {identity(obj): obj for obj in live}
    existing = frozenset(present)
    steps: list[Apply | Delete] = []
    for want in desired:
        have = present.pop(identity(want), None)
        if want["kind"] in _SCALERS and any(kind in _SCALERS - {want["kind"]} for kind, _ in existing):
            continue
        if have is None:
            steps.append(Apply(want, None, "missing"))
        elif not is_deleting(have):
            metadata = have["metadata"]
            compared = (metadata.get("uid", ""), metadata.get("resourceVersion", ""), _fingerprint(want))
            if unchanged.get(identity(want)) == compared:
                continue
            why = difference(want, have, applied.get(identity(want)))
            if why:
                steps.append(Apply(want, have, why, handover(want, have), port_cleanup(want, have)))
            else:
                found[identity(want)] = compared
    steps += [Delete(obj) for obj in present.values() if not is_deleting(obj)]
    return Plan(tuple(steps), {**unchanged, **found} if found else unchanged)


def identity(obj: Object) -> Identity:
    """Kind and name of an object."""
    return obj["kind"], obj["metadata"]["name"]


def difference(desired: Object, live: Object, applied: Applied | None = None) -> str:
    """Returns the path of the first field in which `live` differs from `desired`; "" if an apply isn't needed."""
    path = next(differences(desired, live), "")
    if path and applied is not None and applied == applied_record(desired, live):
        return ""  # the API server stored our last apply in this form
    return path


def differences(desired: Object, live: Object) -> Iterator[str]:
    """Yields the paths of all fields in which `live` differs from `desired`, some of them twice."""
    owned = applied_fields(live)
    yield from _different(desired, live, "", (desired.get("kind", ""),))
    yield from _not_owned(_content(desired), owned, "")
    yield from _no_longer_desired(owned, desired, live, "")


def is_template_of(template: Mapping[str, Any], live: Object) -> bool:
    """Returns whether the Deployment `live` has exactly this pod template, as far as an apply of it changes something.

    A user who may write only the status of a Deployment can't change its spec. 0 and false aren't taken for an absent
    field: in a security context they are something else.
    """
    have = live.get("spec", {}).get("template", {})
    owned = applied_fields(live).get("f:spec", {}).get("f:template", {})
    paths = chain(
        _different(_without_blank(template, have), have, "", (str(live.get("kind", "")), "spec", "template")),
        _no_longer_desired(owned, template, have, ""),
    )
    return next(paths, None) is None


def _without_blank(want: Any, have: Any, field: str = "") -> Any:
    """Returns `want` without the empty values of variables that `have` lacks, because the API server drops them."""
    if isinstance(want, Mapping):
        there = have if isinstance(have, Mapping) else {}
        return {
            key: _without_blank(item, there.get(key), key)
            for key, item in want.items()
            if (key, item) != ("value", "") or key in there
        }
    if isinstance(want, list) and isinstance(have, list) and _keyed(want, field):
        return [_without_blank(item, other, field) for item, other in _pairs(want, have, field)]
    return want


def _without_empty(value: Any) -> Any:
    """Returns `value` without fields that the API server may drop: empty ones, zeros and false."""
    if isinstance(value, Mapping):
        return {key: rest for key, item in value.items() if (rest := _without_empty(item))}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def applied_record(desired: Object, live: Object) -> Applied:
    """Returns the record of an apply of `desired` with the response `live`."""
    return Applied(
        live["metadata"]["uid"],
        _fingerprint(desired),
        _fingerprint([project(desired, live), applied_fields(live)]),
        tuple(islice(_dropped(_without_empty(desired), live, ""), _MAX_DROPPED)),
    )


def is_same_intent(desired: Object, applied: Applied) -> bool:
    """Returns whether the last apply had the same content."""
    return applied.intent == _fingerprint(desired)


def changed_by(desired: Object, live: Object, place: str) -> tuple[str, str]:
    """Returns the path of a desired field that another manager has changed, and that manager; else "" twice.

    `live`: with the managedFields of all managers; the newest comes first. Nobody owns a field that was removed.
    `place`: the beginning of the path.
    """
    entries = live["metadata"].get("managedFields", [])
    for entry in sorted(entries, key=lambda entry: str(entry.get("time", "")), reverse=True):
        if entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply":
            continue
        for path in _changed(_content(desired), live, entry.get("fieldsV1", {}), ""):
            if f"{path}.".startswith(f"{place}.") or path.startswith(f"{place}["):
                subresource = f" ({entry['subresource']})" if entry.get("subresource") else ""
                return path, str(entry.get("manager", "")) + subresource
    return "", ""


def _changed(want: Any, have: Any, owned: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields paths in `owned` at which `have` differs from `want`. Items of lists are named by their keys."""
    if isinstance(want, Mapping) and isinstance(have, Mapping) and owned.keys() - {"."}:
        for key, value in want.items():
            if (below := owned.get(f"f:{key}")) is not None:
                yield from _changed(value, have.get(key), below, f"{path}.{key}")
    elif isinstance(want, list) and isinstance(have, list) and owned.keys() - {"."}:
        field = path.rpartition(".")[2]
        for index, (item, other) in enumerate(_pairs(want, have, field)):
            if (below := _owned_item(item, owned)) is not None:
                keys = [str(item[key]) for key in _keyed(want, field)]
                yield from _changed(item, other, below, f"{path}[{','.join(keys) or index}]")
    elif want != have:
        yield path


def _dropped(want: Any, have: Any, path: str) -> Iterator[str]:
    """Yields paths that `want` has and `have` hasn't."""
    if have is None:
        yield path
    elif isinstance(want, Mapping) and isinstance(have, Mapping):
        for key, value in want.items():
            yield from _dropped(value, have.get(key), f"{path}.{key}")
    elif isinstance(want, list) and isinstance(have, list):
        field = path.rpartition(".")[2]
        if not _keyed(want, field) and len(want) != len(have):
            # Without keys, a longer list doesn't show which items are ours.
            if len(want) > len(have):
                yield path
            return
        for index, (item, other) in enumerate(_pairs(want, have, field)):
            yield from _dropped(item, other, f"{path}[{index}]")


def handover(desired: Object, live: Object) -> dict[str, Any] | None:
    """Returns an object that keeps `spec.replicas` until the autoscaler writes it; None if that isn't needed.

    A field without an owner gets its default, so the Deployment would drop to one replica.
    """
    if "replicas" in desired.get("spec", {}) or "f:replicas" not in applied_fields(live).get("f:spec", {}):
        return None
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {"name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"]},
        "spec": {"replicas": live["spec"]["replicas"]},
    }


def port_cleanup(desired: Object, live: Object) -> dict[str, Any] | None:
    """Returns a patch that removes Service ports with the name of one of ours but another number; None if none exist.

    Kubernetes merges ports by number. If a port was edited, an apply would result in two ports with this name, and the
    API server would refuse it.
    """
    if desired["kind"] != SERVICE.kind:
        return None
    places = {p["name"]: _place(p) for p in desired["spec"]["ports"]}
    others = [p for p in live["spec"].get("ports", []) if places.get(p.get("name"), _place(p)) != _place(p)]
    if not others:
        return None
    return {
        "metadata": {"name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"]},
        # Includes our ports, because a Service without ports is refused too.
        "spec": {"ports": [*({"port": p["port"], "$patch": "delete"} for p in others), *desired["spec"]["ports"]]},
    }


def _place(port: Object) -> tuple[int, str]:
    return port["port"], port.get("protocol", "TCP")


def project(shape: Any, value: Any, field: str = "") -> Any:
    """Returns the parts of `value` at the paths that `shape` has."""
    if isinstance(shape, Mapping) and isinstance(value, Mapping):
        return {k: project(v, value.get(k), k) for k, v in shape.items()}
    if isinstance(shape, list) and isinstance(value, list):
        return [project(want, have) for want, have in _pairs(shape, value, field)]
    return value


def _different(want: Any, have: Any, path: str, at: tuple[str, ...]) -> Iterator[str]:
    """Yields paths at which `have` differs from `want`. `at`: the kind, and the fields on the way."""
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        for key, value in want.items():
            yield from _different(value, have.get(key), f"{path}.{key}", (*at, key))
    elif isinstance(want, list) and isinstance(have, list):
        if not _keyed(want, at[-1]) and len(want) != len(have):
            yield path
        for index, (item, other) in enumerate(_pairs(want, have, at[-1])):
            yield from _different(item, other, f"{path}[{index}]", at)
    elif want != have and not (have is None and _means_nothing(want, at[-1])) and not _same_quantity(want, have, at):
        yield path


def _same_quantity(want: Any, have: Any, at: tuple[str, ...]) -> bool:
    return (at in quantity.PATHS or (*at[:-1], "*") in quantity.PATHS) and quantity.same(want, have)


def _means_nothing(want: Any, field: str) -> bool:
    return want == [] or (want == {} and field in _MAPS)


def _pairs(want: list[Any], have: list[Any], field: str) -> Iterator[tuple[Any, Any]]:
    """Yields pairs of corresponding items: by key if the list has one, else by index."""
    fields = _keyed(want, field)
    if not fields:
        yield from zip(want, have, strict=False)
        return
    by_key = {key_of(item, fields): item for item in have}
    for item in want:
        yield item, by_key.get(key_of(item, fields))


def _keyed(items: list[Any], field: str) -> tuple[str, ...]:
    """Returns the fields that tell the items apart; () if there are none, such as with two of one name."""
    for fields in (_KEYS.get(field, ("name",)), ("name",)):
        keys = {key_of(item, fields) for item in items}
        if items and None not in keys and len(keys) == len(items):
            return fields
    return ()


def applied_fields(live: Object) -> Mapping[str, Any]:
    """Returns the fields that the operator has applied, in the format of managedFields (`f:` before each name)."""
    for entry in live["metadata"].get("managedFields", []):
        # Every field of an entry is optional.
        ours = entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        if ours and "subresource" not in entry:
            fields: Mapping[str, Any] = entry["fieldsV1"]
            return fields
    return {}


def is_orphan(there: Object, model: str) -> bool:
    """Returns whether the operator created the object `there` for the TritonModel `model`, and it has no controller.

    It must have all labels, and managedFields must show that the operator applied them. Labels alone prove nothing,
    because every user who may create an object can set them. A user who can forge managedFields could also set the
    owner reference.
    """
    metadata = there["metadata"]
    applied = applied_fields(there).get("f:metadata", {}).get("f:labels", {})
    labels = {key: value for key, value in metadata.get("labels", {}).items() if f"f:{key}" in applied}
    return (
        not is_deleting(there)
        and not any(reference.get("controller") for reference in metadata.get("ownerReferences", ()))
        and names.labels(model).items() <= labels.items()
    )


def _content(desired: Object) -> Object:
    """Returns `desired` without the fields that identify the object, which have no owner."""
    metadata = {k: v for k, v in desired["metadata"].items() if k not in ("name", "namespace")}
    return {**{k: v for k, v in desired.items() if k not in ("apiVersion", "kind")}, "metadata": metadata}


def _not_owned(want: Any, owned: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields paths of desired fields that we no longer own, because another manager changed them.

    This finds changes that a comparison of values misses, such as an additional key in a map that is owned as a whole.
    """
    if isinstance(want, Mapping):
        for key, value in want.items():
            below = owned.get(f"f:{key}")
            if below is None:
                yield f"{path}.{key}"
            elif below:
                yield from _not_owned(value, below, f"{path}.{key}")
    elif isinstance(want, list):
        for index, item in enumerate(want):
            below = _owned_item(item, owned)
            if below is None:
                yield f"{path}[{index}]"
            elif below:
                yield from _not_owned(item, below, f"{path}[{index}]")


def _owned_item(item: Any, owned: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the fields of the list item `item` that we own; None if we own none."""
    for label, below in owned.items():
        kind, _, rest = label.partition(":")
        if (kind == "k" and _item(json.loads(rest), [item])) or (kind == "v" and json.loads(rest) == item):
            return cast(Mapping[str, Any], below)
    return None


def _no_longer_desired(owned: Mapping[str, Any], want: Any, have: Any, path: str) -> Iterator[str]:
    """Yields paths of live fields that we own and no longer desire."""
    for label, below in owned.items():
        kind, _, rest = label.partition(":")
        live = None
        if kind == "f":
            here, desired = f"{path}.{rest}", isinstance(want, Mapping) and rest in want
            value = want[rest] if desired else None
            live = have.get(rest) if isinstance(have, Mapping) else None
        elif kind == "k":
            here, value = f"{path}[{rest}]", _item(json.loads(rest), want)
            desired, live = value is not None, _item(json.loads(rest), have)
        elif kind == "v":
            here, value = f"{path}[{rest}]", None
            desired = isinstance(want, list) and json.loads(rest) in want
        else:  # "." stands for the field itself
            continue
        if not desired:
            yield here
        elif below:
            yield from _no_longer_desired(below, value, live, here)
        elif not here.startswith(_HASHED):
            yield from _more(value, live, here)


def _more(want: Any, have: Any, path: str) -> Iterator[str]:
    """Yields paths that only `have` has. Both are owned as a whole, so managedFields doesn't name their parts."""
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        for key, value in have.items():
            if key in want:
                yield from _more(want[key], value, f"{path}.{key}")
            elif value != _ADDED.get(key):
                yield f"{path}.{key}"
    elif isinstance(want, list) and isinstance(have, list):
        if len(want) != len(have):
            yield path
        for index, (item, other) in enumerate(_pairs(want, have, "")):
            yield from _more(item, other, f"{path}[{index}]")


def _item(keys: Mapping[str, Any], want: Any) -> Any:
    """Returns the item of `want` with these keys. An item without a key matches, because it gets the default."""
    items = [i for i in want if isinstance(i, Mapping)] if isinstance(want, list) else []
    return next((i for i in items if all(i.get(k, v) == v for k, v in keys.items())), None)


def _fingerprint(value: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
