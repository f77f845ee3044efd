"""Reconciles TritonModels: the only package that combines the pure decisions with I/O."""

from __future__ import annotations

from .reconciler import Reconciler, Result
from .snapshot import Cluster

__all__ = ["Cluster", "Reconciler", "Result"]
