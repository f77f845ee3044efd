"""The annotation that lets the Gateway reject requests above max-qps."""

from __future__ import annotations

from collections.abc import Mapping

from . import names

ANNOTATION = f"{names.GROUP}/enforce"
_VALUES = ("true", "false")


def wanted(annotations: Mapping[str, str]) -> bool | None:
    """Returns whether requests above max-qps should be rejected; None if the annotation can't be read."""
    value = annotations.get(ANNOTATION, "false")
    return value == "true" if value in _VALUES else None


def problem(annotations: Mapping[str, str]) -> str:
    """Returns what is wrong with the annotation, and what to do; "" if nothing is."""
    if wanted(annotations) is not None:
        return ""
    return f"{ANNOTATION}={annotations[ANNOTATION][:32]!r} is neither 'true' nor 'false'"
