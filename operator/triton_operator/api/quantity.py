"""Kubernetes quantities (`500m`, `2Gi`, `1e3`), as decimal numbers."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Kubernetes' grammar of quantities without a sign, because no field here may be negative."""

_SUFFIXES = {
    **{s: Decimal(1000) ** (i - 3) for i, s in enumerate(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"])},
    **{s + "i": Decimal(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
}
_SPLIT = re.compile(r"^([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))\Z", re.ASCII)
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
