"""Reconciles TritonModels: the only package that combines the pure decisions with I/O."""

from __future__ import annotations

from triton_operator.decisions.snapshot import Cluster

from .reconciler import Reconciler, Result

__all__ = ["Cluster", "Reconciler", "Result"]
