"""The replacement of a group's servers before their memory reaches the limit (spec.memoryGrowth)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.status import MEMORY_GREW, RepairStatus, timestamp

from .group import Servers, template_of

_MAX_NAME = 253
_FIRST = datetime(2020, 1, 1, tzinfo=UTC)


def replacement_of(deployment: Mapping[str, Any] | None, now: datetime) -> RepairStatus | None:
    """Returns the last replacement of the servers of this Deployment; None if there was none.

    Also None for a time that can't be true: others may edit the annotation, and the clock may be set back.
    """
    text, _, server = _value((deployment or {}).get("spec", {}).get("template", {})).partition(" ")
    try:
        given = datetime.fromisoformat(text)
        time = given.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    if not server or given.tzinfo is None or not _FIRST <= time <= now:
        return None
    return RepairStatus(
        reason=MEMORY_GREW,
        server=server[:_MAX_NAME],
        message="its memory grew towards the limit, at which the kernel ends a process, so the operator began to "
        "replace all servers before",
        time=timestamp(time),
    )


def in_progress(servers: Servers) -> bool:
    """Returns whether the servers are being replaced for this: some are of before, and of another pod template."""
    if servers.deployment is None:
        return False
    value = _value(servers.deployment.get("spec", {}).get("template", {}))
    template = template_of(servers.deployment)
    return bool(value) and any(_value(pod.raw) != value and not pod.is_current(template) for pod in servers.living)


def _value(obj: Mapping[str, Any]) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_MEMORY, ""))
