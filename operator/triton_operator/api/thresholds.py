"""Thresholds in annotations: their kinds, their validation, and their effective values.

No threshold is part of the pod template, so that a change restarts no pod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from . import names

PREFIX = f"{names.GROUP}/"
VALUE_PATTERN = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?$"
"""A plain decimal number without unit, exponent or sign. The range is checked separately, for a better message."""
VERSION_PATTERN = r"^(v?[1-9][0-9]{0,8}|canary)$"
"""What may follow the name of a kind: a version of the model, or the canary's servers."""
MAX_THRESHOLDS = 64
"""Maximum number of threshold annotations of a TritonModel. An object has room for 14,500 annotations, which would make
the status too large for etcd, and would create as many series in Prometheus."""

NO_LIMIT = "; remove the annotation to have no limit"
_TOO_LOW = ", because a limit is compared with the rate of a minute, and a single request would be above it"
REMOVE_SOME = "remove the thresholds of versions that are no longer served"


@dataclass(frozen=True)
class Source:
    """Where the measured values come from, if Triton itself doesn't measure them.

    `fields`: of spec.monitoring; one of them must be set. `missing`: what to do without, as the end of a message.
    """

    fields: tuple[str, ...]
    missing: str

    def is_in(self, monitoring: Mapping[str, Any]) -> bool:
        """Returns whether spec.monitoring (as JSON) has one of the fields."""
        streaming = monitoring.get("streaming") or {}
        return any(monitoring.get(field) or streaming.get(field) for field in self.fields)


@dataclass(frozen=True)
class ThresholdKind:
    """One kind of threshold. A value must be above `lower` and at most `upper`.

    `default`: the effective value if none is set; infinity means no limit. `too_low`: why a positive value that isn't
    above `lower` is refused, as the end of a message.
    """

    name: str
    default: float
    lower: float = 0
    upper: float = 1e9
    versioned: bool = False
    alias: str = ""
    too_low: str = ""
    source: Source | None = None


LEAST_LIMIT = 0.025
"""A limit is compared with the rate of a minute. One request is 1/60 of that, or up to 1/45 between two scrapes. Below
that, each request would be too many."""
MAX_QPS = ThresholdKind("max-qps", math.inf, lower=LEAST_LIMIT, versioned=True, alias="max_qps", too_low=_TOO_LOW)
"""Maximum demand of the model, in requests per second, over all versions and servers; or of a version, or a canary."""
MAX_QPS_PEAK = ThresholdKind(
    "max-qps-peak", math.inf, lower=1, too_low=", because a single request between two scrapes could be above it"
)
"""Maximum demand of the model between two scrapes, in requests per second, over all versions and servers."""
MAX_QPS_PER_REPLICA = ThresholdKind("max-qps-per-replica", math.inf)
"""Capacity of one server, in requests per second. The autoscaler scales on it."""
_COUNTER = "a token counter: set spec.monitoring.tokenCounter to the counter in the metrics of Triton"
MAX_TPS = ThresholdKind(
    "max-tps",
    math.inf,
    lower=LEAST_LIMIT,
    too_low=_TOO_LOW,
    source=Source(("tokenCounter",), f"{_COUNTER}, or use max-qps"),
)
"""Maximum number of tokens per second, over all servers."""
MAX_TPS_PER_REPLICA = ThresholdKind(
    "max-tps-per-replica", math.inf, source=Source(("tokenCounter",), f"{_COUNTER}, or use max-qps-per-replica")
)
"""Capacity of one server, in tokens per second. The autoscaler scales on it."""
MAX_STREAMS_PER_REPLICA = ThresholdKind(
    "max-streams-per-replica",
    math.inf,
    source=Source(("names", "running"), "a gauge of open streams: set spec.monitoring.streaming.running, or names"),
)
"""Capacity of one server, in streams that run or wait. The autoscaler scales on it."""
MAX_CACHE_USAGE_PER_REPLICA = ThresholdKind(
    "max-cache-usage-per-replica",
    math.inf,
    upper=1,
    source=Source(
        ("names", "cacheUsage"), "a gauge of the KV cache: set spec.monitoring.streaming.cacheUsage, or names"
    ),
)
"""Capacity of one server, as the share of its KV cache that may be in use. The autoscaler scales on it."""
ENSEMBLE_COEFFICIENT = ThresholdKind("ensemble-coefficient", 1, upper=1000)
"""The number of requests that one request counts as, for instance the depth of a pipeline."""
TOKEN_COEFFICIENT = ThresholdKind("token-coefficient", math.inf, upper=1000, source=Source(("tokenCounter",), _COUNTER))
"""The number of tokens that one counted token counts as, if the servers cut texts by another vocabulary than that of
the limit. Without a value it is 1."""
SPIKE_FACTOR = ThresholdKind("spike-factor", 3, lower=1, upper=1000)
"""A demand above this multiple of the last ten minutes' average is a spike."""

KINDS = (
    MAX_QPS,
    MAX_QPS_PEAK,
    MAX_QPS_PER_REPLICA,
    MAX_TPS,
    MAX_TPS_PER_REPLICA,
    MAX_STREAMS_PER_REPLICA,
    MAX_CACHE_USAGE_PER_REPLICA,
    ENSEMBLE_COEFFICIENT,
    TOKEN_COEFFICIENT,
    SPIKE_FACTOR,
)
"""The kinds that users can set, in the order of the status."""
OF_TOKENS = (MAX_TPS, MAX_TPS_PER_REPLICA, TOKEN_COEFFICIENT)
"""The kinds that need spec.monitoring.tokenCounter."""
CAPACITIES = (MAX_QPS_PER_REPLICA, MAX_TPS_PER_REPLICA, MAX_STREAMS_PER_REPLICA, MAX_CACHE_USAGE_PER_REPLICA)
"""The kinds that are the capacity of one server."""


@dataclass(frozen=True, order=True)
class ThresholdKey:
    """Kind and model version of a threshold. `version` is a number without `v`, or `canary`; "" means all versions."""

    kind: str
    version: str = ""

    def __str__(self) -> str:
        if not self.version:
            return self.kind
        return f"{self.kind}.{self.version}" if self.version == names.CANARY else f"{self.kind}.v{self.version}"


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


def parse(annotations: Mapping[str, str], monitoring: Mapping[str, Any] = MappingProxyType({})) -> Thresholds:
    """Reads the thresholds in `annotations`. Never raises; invalid annotations are in `invalid`.

    `monitoring`: spec.monitoring (as JSON), which names the series that some kinds need.
    """
    requested: dict[ThresholdKey, RequestedThreshold] = {}
    invalid: list[InvalidThreshold] = []
    keys = sorted(filter(is_threshold, annotations), key=_rank)
    for key in sorted(keys[:MAX_THRESHOLDS]):
        text = annotations[key]
        result = _read(key, text, monitoring)
        if isinstance(result, InvalidThreshold):
            invalid.append(result)
        elif result is not None:
            threshold, value = result
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
    return Thresholds({t: r for t, r in requested.items() if t not in {i.threshold for i in invalid}}, tuple(invalid))


def effective(values: Mapping[ThresholdKey, Decimal], max_replicas: int) -> dict[ThresholdKey, float]:
    """Returns the effective thresholds: `values`, and the default for each kind without a value.

    A capacity of one server that isn't set is the limit divided by `max_replicas`, the maximum number of servers.
    """
    out = {ThresholdKey(k.name): k.default for k in KINDS} | {key: float(value) for key, value in values.items()}
    for limit, capacity in ((MAX_QPS, MAX_QPS_PER_REPLICA), (MAX_TPS, MAX_TPS_PER_REPLICA)):
        if math.isinf(out[ThresholdKey(capacity.name)]):
            out[ThresholdKey(capacity.name)] = out[ThresholdKey(limit.name)] / max(max_replicas, 1)
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


def _read(
    key: str, text: str, monitoring: Mapping[str, Any]
) -> tuple[ThresholdKey, RequestedThreshold] | InvalidThreshold | None:
    parts = _split(key)
    if parts is None:
        return None
    kind, version = parts
    if version is not None and not kind.versioned:
        return InvalidThreshold(key, f"{key}: {kind.name} applies to all versions; remove the .{version}")
    if version is not None and not re.fullmatch(VERSION_PATTERN, version):
        return InvalidThreshold(key, f"{key}: {version!r} is not a model version such as 2 or v2, and not canary")
    threshold = ThresholdKey(kind.name, (version or "").removeprefix("v"))
    if not re.fullmatch(VALUE_PATTERN, text):
        return InvalidThreshold(
            key, f"{key}={text[:32]!r} is not a plain number such as 80 or 12.5 (without a unit)", threshold
        )
    value = Decimal(text)
    if not kind.lower < value <= kind.upper:
        hint = NO_LIMIT if value == 0 else kind.too_low if value <= kind.lower else ""
        return InvalidThreshold(
            key, f"{key}={text}: must be above {kind.lower:g} and at most {int(kind.upper)}{hint}", threshold
        )
    if kind.source and not kind.source.is_in(monitoring):
        return InvalidThreshold(key, f"{key}: {kind.name} needs {kind.source.missing}", threshold)
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
    entries = [e for e in status.get("thresholds", []) if re.fullmatch(VALUE_PATTERN, e["value"])]
    return {ThresholdKey(e["kind"], e.get("version", "")): Decimal(e["value"]) for e in entries}


def accepted(thresholds: Thresholds, before: Mapping[ThresholdKey, Decimal]) -> dict[ThresholdKey, Decimal]:
    """Returns the accepted values: the requested ones, and the last accepted value for each invalid annotation."""
    keys = [invalid.threshold for invalid in thresholds.invalid]
    earlier = {key: before[key] for key in keys if key is not None and key in before}
    return {**earlier, **{key: threshold.value for key, threshold in thresholds.requested.items()}}


def of(model: Mapping[str, Any]) -> Thresholds:
    """Returns the thresholds in the annotations of a TritonModel (as JSON)."""
    return parse(model["metadata"].get("annotations", {}), model["spec"].get("monitoring", {}))


def has_limit(effective: Mapping[ThresholdKey, float], kinds: Iterable[ThresholdKind]) -> bool:
    """Returns whether one of the kinds has a limit for all versions."""
    return any(math.isfinite(effective.get(ThresholdKey(kind.name), math.inf)) for kind in kinds)


def effective_of(model: Mapping[str, Any], thresholds: Thresholds | None = None) -> dict[ThresholdKey, float]:
    """Returns the effective thresholds of a TritonModel (as JSON). `thresholds`: `of(model)`, if the caller has it."""
    spec = model["spec"]
    scaling = spec.get("autoscaling", {})
    scales = scaling and scaling.get("engine", "HPA") != "None"
    max_replicas = scaling["max"] if scales else spec.get("replicas", 1)
    return effective(accepted(thresholds or of(model), last_accepted(model.get("status", {}))), max_replicas)
