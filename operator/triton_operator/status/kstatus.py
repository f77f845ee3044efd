"""Progressing in the words of kstatus, with which Flux and Helm judge a resource. Pure.

kstatus takes a resource for current as soon as Ready is True, unless Reconciling or Stalled is. Ready is about any
server, and Progressing is False after a success and a failure.
"""

from __future__ import annotations

from triton_operator.api.status import RECONCILING, STALLED, Condition

from .conditions import condition

COMPLETE = "Complete"
"""The reason of Progressing when every server runs the current spec."""
UNSCHEDULABLE = "Unschedulable"
"""The reason of Progressing that ends by itself, when a node becomes free or is added."""


def kstatus(progressing: Condition) -> list[Condition]:
    """Returns the conditions Reconciling and Stalled. At most one of them is True; none if the current spec is live."""
    is_reconciling = progressing.status == "True" or progressing.reason == UNSCHEDULABLE
    is_stalled = not is_reconciling and progressing.reason != COMPLETE
    return [
        condition(kind, "True" if holds else "False", progressing.reason, progressing.message if holds else "")
        for kind, holds in ((RECONCILING, is_reconciling), (STALLED, is_stalled))
    ]
