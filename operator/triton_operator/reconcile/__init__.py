"""The one place where decisions and I/O meet: makes true what one TritonModel says."""

from __future__ import annotations

from .reconciler import Outcome, Reconciler

__all__ = ["Outcome", "Reconciler"]
