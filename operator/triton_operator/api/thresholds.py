"""Thresholds in annotations: which there are, how strictly they are read, and what is in force.

A value never reaches the pod template, so that no change of one restarts a pod.
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
"""What a value looks like: a plain decimal number. No unit, no exponent, no sign. Its range is checked apart, so that a
value that is too large is told as that."""
VERSION_PATTERN = r"^v?[1-9][0-9]{0,8}$"
MOST = 64
"""Annotations of thresholds that one TritonModel may have. Annotations have room for 14500: the status would be larger
than etcd takes, and Prometheus would get a series for each."""

REMOVE_SOME = "remove the thresholds of versions that are no longer served"


@dataclass(frozen=True)
class ThresholdKind:
    """One kind of threshold. Values must be above `least` and at most `most`. `default` is in force where nothing
    is set; infinity is no limit."""

    name: str
    default: float
    least: float = 0
    most: float = 1e9
    versioned: bool = False
    alias: str = ""


MAX_QPS = ThresholdKind("max-qps", math.inf, versioned=True, alias="max_qps")
"""Requests a second that the model may get, over all its versions and servers."""
MAX_QPS_PER_REPLICA = ThresholdKind("max-qps-per-replica", math.inf)
"""Requests a second that one server is for: what the autoscaler aims at."""
MAX_TPS = ThresholdKind("max-tps", math.inf)
"""Tokens a second that the model may make, over all its servers."""
ENSEMBLE_COEFFICIENT = ThresholdKind("ensemble-coefficient", 1, most=1000)
"""As how many requests one request counts: the depth of a pipeline."""
SPIKE_FACTOR = ThresholdKind("spike-factor", 3, least=1, most=1000)
"""A load this many times that of the last ten minutes is a spike."""
MAX_TPS_PER_REPLICA = ThresholdKind("max-tps-per-replica", math.inf)
"""max-tps by the most servers there may be. Only derived; nobody sets it."""

KINDS = (MAX_QPS, MAX_QPS_PER_REPLICA, MAX_TPS, ENSEMBLE_COEFFICIENT, SPIKE_FACTOR)
"""What may be set, in the order in which status tells it."""


@dataclass(frozen=True, order=True)
class ThresholdKey:
    """What one value is for. `version` is Triton's, as a number without `v`; "" is the model as a whole."""

    kind: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.kind}.v{self.version}" if self.version else self.kind


@dataclass(frozen=True)
class RequestedThreshold:
    """A value as it was written. `source` is the annotation's key."""

    value: Decimal
    source: str


@dataclass(frozen=True)
class InvalidThreshold:
    """An annotation that can't be read: which, why, and what to do."""

    source: str
    message: str
    slot: ThresholdKey | None = None


@dataclass(frozen=True)
class Thresholds:
    """What the annotations of one TritonModel say."""

    requested: Mapping[ThresholdKey, RequestedThreshold]
    invalid: tuple[InvalidThreshold, ...] = ()


def parse(annotations: Mapping[str, str], token_counter: str = "") -> Thresholds:
    """Reads every threshold of `annotations`. `token_counter`: spec.monitoring.tokenCounter, without which
    tokens can't be counted. Never raises: what can't be read is in `invalid`."""
    requested: dict[ThresholdKey, RequestedThreshold] = {}
    invalid: list[InvalidThreshold] = []
    keys = sorted(filter(is_threshold, annotations), key=_rank)
    for key in sorted(keys[:MOST]):
        text = annotations[key]
        found = _read(key, text, token_counter)
        if isinstance(found, InvalidThreshold):
            invalid.append(found)
        elif found is not None:
            slot, value = found
            other = requested.get(slot)
            if other is not None and other.value != value.value:
                # Which of them is meant nobody can tell: neither is taken.
                invalid.append(
                    InvalidThreshold(key, f"{key}={text} and {other.source}={other.value} differ: remove one", slot)
                )
                del requested[slot]
                continue
            requested.setdefault(slot, value)
    if len(keys) > MOST:
        invalid.append(_too_many(keys))
    return Thresholds({s: a for s, a in requested.items() if s not in {w.slot for w in invalid}}, tuple(invalid))


def effective(values: Mapping[ThresholdKey, Decimal], max_replicas: int) -> dict[ThresholdKey, float]:
    """What is in force: `values` and, for every kind that has none, its default. What a server is for follows from
    the model's ceiling where it isn't set: divided by `max_replicas`, the most servers that there may be."""
    out = {ThresholdKey(k.name): k.default for k in KINDS} | {s: float(v) for s, v in values.items()}
    share = max(max_replicas, 1)
    if math.isinf(out[ThresholdKey(MAX_QPS_PER_REPLICA.name)]):
        out[ThresholdKey(MAX_QPS_PER_REPLICA.name)] = out[ThresholdKey(MAX_QPS.name)] / share
    out[ThresholdKey(MAX_TPS_PER_REPLICA.name)] = out[ThresholdKey(MAX_TPS.name)] / share
    return out


def is_threshold(key: str) -> bool:
    """Whether an annotation's key is one of a threshold, or means to be."""
    return _split(key) is not None


def _rank(key: str) -> tuple[bool, int, str]:
    """The order in which annotations count where there are too many: those of the whole model first, then the lowest
    versions, so that a version that is added takes nothing from the others."""
    _, version = _split(key) or (None, None)
    return version is not None, len((version or "").removeprefix("v")), key


def _too_many(keys: Sequence[str]) -> InvalidThreshold:
    first, after = keys[MOST], len(keys) - MOST - 1
    more = f" and the {after} after it are" if after else " is"
    return InvalidThreshold(
        first, f"{len(keys)} annotations are thresholds, and {MOST} may be: {first}{more} ignored; {REMOVE_SOME}"
    )


def _read(key: str, text: str, token_counter: str) -> tuple[ThresholdKey, RequestedThreshold] | InvalidThreshold | None:
    found = _split(key)
    if found is None:
        return None
    kind, version = found
    if version is not None and not kind.versioned:
        return InvalidThreshold(
            key, f"{key}: {kind.name} is for the whole model and takes no version; remove the .{version}"
        )
    if version is not None and not re.fullmatch(VERSION_PATTERN, version):
        return InvalidThreshold(key, f"{key}: {version!r} is not a model version such as 2 or v2")
    slot = ThresholdKey(kind.name, (version or "").removeprefix("v"))
    if not re.fullmatch(VALUE_PATTERN, text):
        return InvalidThreshold(key, f"{key}={text[:32]!r} is not a number such as 80 or 12.5, without a unit", slot)
    value = Decimal(text)
    if not kind.least < value <= kind.most:
        hint = "; to have none, remove the annotation" if value == 0 else ""
        return InvalidThreshold(
            key, f"{key}={text}: must be above {kind.least:g} and at most {int(kind.most)}{hint}", slot
        )
    if kind is MAX_TPS and not token_counter:
        return InvalidThreshold(
            key,
            f"{key}: no model of this repository is known to count tokens; name the counter that Triton exposes in "
            "spec.monitoring.tokenCounter, or use max-qps",
            slot,
        )
    return slot, RequestedThreshold(value, key)


def _split(key: str) -> tuple[ThresholdKind, str | None] | None:
    """The kind and, where there is one, the version that an annotation's key names."""
    for kind in KINDS:
        for base in (PREFIX + kind.name, *([kind.alias] if kind.alias else [])):
            if key == base:
                return kind, None
            if key.startswith(base + "."):
                return kind, key.removeprefix(base + ".")
    return None


def text(value: float | Decimal) -> str:
    """How a value is shown: 80, 12.5, none."""
    number = float(value)
    return "none" if math.isinf(number) else f"{number:.6f}".rstrip("0").rstrip(".")


def last_accepted(status: Mapping[str, Any]) -> dict[ThresholdKey, Decimal]:
    """The values that a status holds: in force until better ones come. What isn't a value is passed over, because
    others may write a status too."""
    kept = [e for e in status.get("thresholds", []) if re.fullmatch(VALUE_PATTERN, e["value"])]
    return {ThresholdKey(e["kind"], e.get("version", "")): Decimal(e["value"]) for e in kept}


def accepted(found: Thresholds, before: Mapping[ThresholdKey, Decimal]) -> dict[ThresholdKey, Decimal]:
    """The values to compare with: what the annotations say, and the last good value where they say nonsense."""
    kept = {w.slot: before[w.slot] for w in found.invalid if w.slot is not None and w.slot in before}
    return {**kept, **{s: a.value for s, a in found.requested.items()}}


def of(model: Mapping[str, Any]) -> Thresholds:
    """What the annotations of a TritonModel, as the API server has it, say."""
    monitoring = model["spec"].get("monitoring", {})
    return parse(model["metadata"].get("annotations", {}), monitoring.get("tokenCounter", ""))


def effective_of(model: Mapping[str, Any], found: Thresholds | None = None) -> dict[ThresholdKey, float]:
    """What is in force for a TritonModel, as the API server has it. `found`: `of(model)`, where that is known."""
    spec = model["spec"]
    scaling = spec.get("autoscaling", {})
    scales = scaling and scaling.get("engine", "HPA") != "None"
    most = scaling["max"] if scales else spec.get("replicas", 1)
    return effective(accepted(found or of(model), last_accepted(model.get("status", {}))), most)
