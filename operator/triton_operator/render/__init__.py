"""The objects that a TritonModel stands for. Pure: the same spec and choices give the same objects."""

from __future__ import annotations

from typing import Any

from triton_operator.api.types import TritonModel

from .autoscaler import autoscaler
from .choices import Choices
from .choose import choose
from .deployment import deployment
from .disruption_budget import disruption_budget
from .network_policy import network_policy
from .pod_monitor import pod_monitor
from .prometheus_rule import prometheus_rule
from .service import endpoint, services
from .service_account import service_account

__all__ = ["Choices", "choose", "endpoint", "render"]


def render(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """All objects of `model`, in the order in which they are applied."""
    rest = [disruption_budget(model, choices), *_monitoring(model, choices), autoscaler(model)]
    # The network policy first: no server is to run without it.
    isolation = network_policy(model, choices)
    before = [service_account(model), *services(model), *([isolation] if isolation else [])]
    return [*before, deployment(model, choices), *(o for o in rest if o)]


def _monitoring(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """What Prometheus is told. The rules wait until it is known whether the entry model is an ensemble."""
    if not (choices.monitoring and model.spec.monitoring.enabled):
        return []
    rules = [prometheus_rule(model, choices)] if choices.entrypoint else []
    return [pod_monitor(model), *rules]
