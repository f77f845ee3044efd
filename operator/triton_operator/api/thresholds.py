"""Thresholds in annotations: their kinds, their validation, and their effective values.

No threshold is part of the pod template, so that a change restarts no pod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from . import names

PREFIX = f"{names.GROUP}/"
VALUE_PATTERN = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?$"
"""A plain decimal number without unit, exponent or sign. The range is checked separately, for a better message."""
VERSION_PATTERN = r"^v?[1-9][0-9]{0,8}$"
MAX_THRESHOLDS = 64
"""Maximum number of threshold annotations of a TritonModel. An object has room for 14,500 annotations, which would make
the status too large for etcd, and would create as many series in Prometheus."""

REMOVE_SOME = "remove the thresholds of versions that are no longer served"


@dataclass(frozen=True)
class ThresholdKind:
    """One kind of threshold. A value must be above `lower` and at most `upper`.

    `default`: the effective value if none is set; infinity means no limit.
    """

    name: str
    default: float
    lower: float = 0
    upper: float = 1e9
    versioned: bool = False
    alias: str = ""


MAX_QPS = ThresholdKind("max-qps", math.inf, versioned=True, alias="max_qps")
"""Maximum demand of the model, in requests per second, over all versions and servers."""
MAX_QPS_PER_REPLICA = ThresholdKind("max-qps-per-replica", math.inf)
"""Capacity of one server, in requests per second. The autoscaler scales on it."""
MAX_TPS = ThresholdKind("max-tps", math.inf)
"""Maximum number of tokens per second, over all servers."""
ENSEMBLE_COEFFICIENT = ThresholdKind("ensemble-coefficient", 1, upper=1000)
"""The number of requests that one request counts as, for instance the depth of a pipeline."""
SPIKE_FACTOR = ThresholdKind("spike-factor", 3, lower=1, upper=1000)
"""A demand above this multiple of the last ten minutes' average is a spike."""
MAX_TPS_PER_REPLICA = ThresholdKind("max-tps-per-replica", math.inf)
"""Derived: max-tps divided by the maximum number of servers. It can't be set."""

KINDS = (MAX_QPS, MAX_QPS_PER_REPLICA, MAX_TPS, ENSEMBLE_COEFFICIENT, SPIKE_FACTOR)
"""The kinds that users can set, in the order of the status."""


@dataclass(frozen=True, order=True)
class ThresholdKey:
    """Kind and model version of a threshold. `version` is a number without `v`; "" means all versions."""

    kind: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.kind}.v{self.version}" if self.version else self.kind


@dataclass(frozen=True)
class RequestedThreshold:
    """A valid value in an annotation. `source` is the annotation's key."""

    value: Decimal
    source: str


@dataclass(frozen=True)
class InvalidThreshold:
    """An invalid annotation. `message` says what is wrong and what to do."""

    source: str
    message: str
    threshold: ThresholdKey | None = None


@dataclass(frozen=True)
class Thresholds:
    """The thresholds in the annotations of a TritonModel."""

    requested: Mapping[ThresholdKey, RequestedThreshold]
    invalid: tuple[InvalidThreshold, ...] = ()


def parse(annotations: Mapping[str, str], token_counter: str = "") -> Thresholds:
    """Reads the thresholds in `annotations`. Never raises; invalid annotations are in `invalid`.

    `token_counter`: spec.monitoring.tokenCounter, which max-tps needs.
    """
    requested: dict[ThresholdKey, RequestedThreshold] = {}
    invalid: list[InvalidThreshold] = []
    keys = sorted(filter(is_threshold, annotations), key=_rank)
    for key in sorted(keys[:MAX_THRESHOLDS]):
        text = annotations[key]
        found = _read(key, text, token_counter)
        if isinstance(found, InvalidThreshold):
            invalid.append(found)
        elif found is not None:
            threshold, value = found
            other = requested.get(threshold)
            if other is not None and other.value != value.value:
                # Neither value is used, because it isn't clear which one is meant.
                invalid.append(
                    InvalidThreshold(
                        key, f"{key}={text} and {other.source}={other.value} differ: remove one", threshold
                    )
                )
                del requested[threshold]
                continue
            requested.setdefault(threshold, value)
    if len(keys) > MAX_THRESHOLDS:
        invalid.append(_too_many(keys))
    return Thresholds({s: a for s, a in requested.items() if s not in {w.threshold for w in invalid}}, tuple(invalid))


def effective(values: Mapping[ThresholdKey, Decimal], max_replicas: int) -> dict[ThresholdKey, float]:
    """Returns the effective thresholds: `values`, and the default for each kind without a value.

    If max-qps-per-replica isn't set, it is max-qps divided by `max_replicas`, the maximum number of servers.
    """
    out = {ThresholdKey(k.name): k.default for k in KINDS} | {s: float(v) for s, v in values.items()}
    share = max(max_replicas, 1)
    if math.isinf(out[ThresholdKey(MAX_QPS_PER_REPLICA.name)]):
        out[ThresholdKey(MAX_QPS_PER_REPLICA.name)] = out[ThresholdKey(MAX_QPS.name)] / share
    out[ThresholdKey(MAX_TPS_PER_REPLICA.name)] = out[ThresholdKey(MAX_TPS.name)] / share
    return out


def is_threshold(key: str) -> bool:
    """Returns whether an annotation's key names a threshold. The rest of the key may be invalid."""
    return _split(key) is not None


def _rank(key: str) -> tuple[bool, int, str]:
    """Returns the sort key for the limit on their number: thresholds of all versions first, then by version number.

    So an added version doesn't displace others.
    """
    _, version = _split(key) or (None, None)
    return version is not None, len((version or "").removeprefix("v")), key


def _too_many(keys: Sequence[str]) -> InvalidThreshold:
    first, after = keys[MAX_THRESHOLDS], len(keys) - MAX_THRESHOLDS - 1
    more = f" and the {after} after it are" if after else " is"
    return InvalidThreshold(
        first,
        f"{len(keys)} threshold annotations, but at most {MAX_THRESHOLDS} are allowed: {first}{more} ignored; "
        f"{REMOVE_SOME}",
    )


def _read(key: str, text: str, token_counter: str) -> tuple[ThresholdKey, RequestedThreshold] | InvalidThreshold | None:
    found = _split(key)
    if found is None:
        return None
    kind, version = found
    if version is not None and not kind.versioned:
        return InvalidThreshold(key, f"{key}: {kind.name} applies to all versions; remove the .{version}")
    if version is not None and not re.fullmatch(VERSION_PATTERN, version):
        return InvalidThreshold(key, f"{key}: {version!r} is not a model version such as 2 or v2")
    threshold = ThresholdKey(kind.name, (version or "").removeprefix("v"))
    if not re.fullmatch(VALUE_PATTERN, text):
        return InvalidThreshold(
            key, f"{key}={text[:32]!r} is not a plain number such as 80 or 12.5 (without a unit)", threshold
        )
    value = Decimal(text)
    if not kind.lower < value <= kind.upper:
        hint = "; remove the annotation to have no limit" if value == 0 else ""
        return InvalidThreshold(
            key, f"{key}={text}: must be above {kind.lower:g} and at most {int(kind.upper)}{hint}", threshold
        )
    if kind is MAX_TPS and not token_counter:
        return InvalidThreshold(
            key,
            f"{key}: max-tps needs a token counter: set "
            "spec.monitoring.tokenCounter to the counter in the metrics of Triton, or use max-qps",
            threshold,
        )
    return threshold, RequestedThreshold(value, key)


def _split(key: str) -> tuple[ThresholdKind, str | None] | None:
    """Returns the kind and the version in an annotation's key; None for other annotations."""
    for kind in KINDS:
        for base in (PREFIX + kind.name, *([kind.alias] if kind.alias else [])):
            if key == base:
                return kind, None
            if key.startswith(base + "."):
                return kind, key.removeprefix(base + ".")
    return None


def text(value: float | Decimal) -> str:
    """Returns the value as text: 80, 12.5, none."""
    number = float(value)
    return "none" if math.isinf(number) else f"{number:.6f}".rstrip("0").rstrip(".")


def last_accepted(status: Mapping[str, Any]) -> dict[ThresholdKey, Decimal]:
    """Returns the accepted values in a status. Skips invalid entries, because other clients may write a status too."""
    kept = [e for e in status.get("thresholds", []) if re.fullmatch(VALUE_PATTERN, e["value"])]
    return {ThresholdKey(e["kind"], e.get("version", "")): Decimal(e["value"]) for e in kept}


def accepted(found: Thresholds, before: Mapping[ThresholdKey, Decimal]) -> dict[ThresholdKey, Decimal]:
    """Returns the accepted values: the requested ones, and the last accepted value for each invalid annotation."""
    kept = {
        w.threshold: before[w.threshold] for w in found.invalid if w.threshold is not None and w.threshold in before
    }
    return {**kept, **{s: a.value for s, a in found.requested.items()}}


def of(model: Mapping[str, Any]) -> Thresholds:
    """Returns the thresholds in the annotations of a TritonModel (as JSON)."""
    monitoring = model["spec"].get("monitoring", {})
    return parse(model["metadata"].get("annotations", {}), monitoring.get("tokenCounter", ""))


def effective_of(model: Mapping[str, Any], found: Thresholds | None = None) -> dict[ThresholdKey, float]:
    """Returns the effective thresholds of a TritonModel (as JSON). `found`: `of(model)`, if the caller has it."""
    spec = model["spec"]
    scaling = spec.get("autoscaling", {})
    scales = scaling and scaling.get("engine", "HPA") != "None"
    max_replicas = scaling["max"] if scales else spec.get("replicas", 1)
    return effective(accepted(found or of(model), last_accepted(model.get("status", {}))), max_replicas)
