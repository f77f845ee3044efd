"""Polls Triton servers and Prometheus in the background. A reconcile reads the last answers and never waits for one."""

from .prober import Prober

__all__ = ["Prober"]
