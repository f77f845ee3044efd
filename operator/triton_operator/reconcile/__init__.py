"""Reconciles TritonModels: the only package that combines the pure decisions with I/O."""

from __future__ import annotations

from .reconciler import Reconciler, Result

__all__ = ["Reconciler", "Result"]
