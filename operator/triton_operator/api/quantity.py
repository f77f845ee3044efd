"""Kubernetes quantities (`500m`, `2Gi`, `1e3`), as decimal numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Kubernetes' own grammar, without a sign: no field here takes a negative amount."""

_SUFFIXES = {
    **{s: Decimal(1000) ** (i - 3) for i, s in enumerate(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"])},
    **{s + "i": Decimal(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
}
_SPLIT = re.compile(r"^((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$")


def parse(text: str | int | float) -> Decimal:
    """The amount that `text` stands for, in units (bytes, cores, devices).

    Raises ValueError where it isn't a quantity.
    """
    match = _SPLIT.match(str(text))
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a Kubernetes quantity, such as 500m, 2 or 4Gi")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def same(left: object, right: object) -> bool:
    """Whether two values are one quantity, however written (`1000m` and `1`)."""
    if not isinstance(left, str | int | float) or not isinstance(right, str | int | float):
        return False
    try:
        return parse(left) == parse(right)
    except (ValueError, ArithmeticError):
        return False


def mebibytes(amount: Decimal) -> str:
    """`amount` bytes as a quantity in whole Mi, rounded up."""
    return f"{math.ceil(amount / (1 << 20))}Mi"
