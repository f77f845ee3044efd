"""Kubernetes quantities (`500m`, `2Gi`, `1e3`), as decimal numbers."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
"""Kubernetes' grammar of quantities, without a sign, because no field here may be negative, and with at most two digits
in the exponent: a Deployment with 1e99999999 takes the API server more than half a minute of CPU time."""

_POD = ("Deployment", "spec", "template", "spec")
_AMOUNTS = (("limits", "*"), ("requests", "*"))
_CONTAINER = (*(("resources", *amount) for amount in _AMOUNTS), ("env", "valueFrom", "resourceFieldRef", "divisor"))
_CLAIM = ("volumes", "ephemeral", "volumeClaimTemplate", "spec", "resources")
_ITEM = ("downwardAPI", "items", "resourceFieldRef", "divisor")
_METRICS = ("resource", "containerResource", "pods", "object", "external")
_SCALER = ("HorizontalPodAutoscaler", "spec")
PATHS = frozenset(
    {
        *((*_POD, containers, *end) for containers in ("containers", "initContainers") for end in _CONTAINER),
        *((*_POD, *way, *amount) for way in (("resources",), _CLAIM) for amount in _AMOUNTS),
        (*_POD, "overhead", "*"),
        (*_POD, "volumes", "emptyDir", "sizeLimit"),
        (*_POD, "volumes", *_ITEM),
        (*_POD, "volumes", "projected", "sources", *_ITEM),
        *((*_SCALER, "metrics", m, "target", value) for m in _METRICS for value in ("value", "averageValue")),
        *((*_SCALER, "behavior", direction, "tolerance") for direction in ("scaleUp", "scaleDown")),
    }
)
"""The fields of child objects that are quantities: the kind, and the names on the way. `*` stands for any key. The API
server stores them in its own form. In every other field `1.10` and `1.1` are two values."""

_SUFFIXES = {
    **{s: Decimal(1000) ** (i - 3) for i, s in enumerate(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"])},
    **{s + "i": Decimal(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
}
_SPLIT = re.compile(r"^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))\Z", re.ASCII)
_MAX, _MIN = Decimal(2**63 - 1), Decimal("1e-9")
_DIGITS = 64
_EXPONENT_MAX = 400
"""Larger exponents make no difference, because a quantity has fewer digits."""


def parse(text: str | int | float) -> Decimal:
    """Returns the amount of a quantity, in units (bytes, cores, devices).

    As in Kubernetes, it is at most 2^63-1 and rounded up to nine decimal places.

    Raises ValueError if `text` isn't a quantity.
    """
    match = _SPLIT.match(str(text))
    if match is None or (match[3] or "") not in _SUFFIXES or len(match[1]) > _DIGITS or len(match[2] or "") > _DIGITS:
        raise ValueError(f"{str(text)[:_DIGITS]!r} is not a Kubernetes quantity, such as 500m, 2 or 4Gi")
    exponent = max(-_EXPONENT_MAX, min(int(match[2] or "0"), _EXPONENT_MAX))
    amount = Decimal(match[1]).scaleb(exponent) * _SUFFIXES[match[3] or ""]
    return min(amount, _MAX).quantize(_MIN, ROUND_CEILING)


def same(left: object, right: object) -> bool:
    """Returns whether two values are the same quantity, such as `1000m` and `1`."""
    if not isinstance(left, str | int | float) or not isinstance(right, str | int | float):
        return False
    try:
        return parse(left) == parse(right)
    except (ValueError, ArithmeticError):
        return False


def mebibytes(amount: Decimal) -> str:
    """Returns `amount` bytes as a quantity in whole Mi, rounded up."""
    return f"{math.ceil(amount / (1 << 20))}Mi"
