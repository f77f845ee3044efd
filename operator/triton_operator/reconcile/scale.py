"""Does the steps that change a Deployment's number of servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from triton_operator.api import kinds
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.steps import ScaleUp, WakeUp
from triton_operator.engines import SCALERS

from .refusals import refuse

OTHERS_SCALED = (404, 409, 422)
"""HTTP statuses that mean that the number of servers, or the Deployment, has changed meanwhile. But 422 is also the
usual answer of an admission policy."""
Log = logging.LoggerAdapter[logging.Logger]


class Scaler:
    """Scales Deployments. Safe to use from several threads. `on_scale_up`: called after each scale-up.

    Its methods leave the number as it is if it has changed meanwhile. They raise ApiError if the API server doesn't
    answer.
    """

    def __init__(self, api: KubernetesApi, on_scale_up: Callable[[], None]) -> None:
        self._api, self._on_scale_up = api, on_scale_up

    def scale_up(self, step: ScaleUp, outcome: Outcome, log: Log) -> None:
        """Adds servers, unless the autoscaler's raised minimum was refused: it would remove them."""
        kind, decision = kinds.AUTOSCALER.kind, step.decision
        if kind in outcome.refused or decision.target <= step.deployment["spec"]["replicas"]:
            return
        if self._scale(step, decision.target, ("", kind, "ScaleRefused"), outcome, log):
            log.info("%s", decision.message)
            self._on_scale_up()

    def wake_up(self, step: WakeUp, outcome: Outcome, log: Log) -> None:
        """Starts servers after another engine, or one with another minimum, has scaled to zero.

        If that is refused, the objects that scale stay as they are: by them the next reconcile sees who has scaled to
        zero.
        """
        deployment = kinds.DEPLOYMENT.kind
        if self._scale(step, step.replicas, (" from 0", deployment, "ApplyRefused"), outcome, log):
            log.info("scaled from 0 to %d servers: another engine or minimum had scaled them to 0", step.replicas)
        elif problem := outcome.refused.get(deployment):
            outcome.blocked |= {(scaler.kind.kind, step.deployment["metadata"]["name"]): problem for scaler in SCALERS}

    def _scale(
        self, step: ScaleUp | WakeUp, replicas: int, refusal: tuple[str, str, str], outcome: Outcome, log: Log
    ) -> bool:
        """Returns whether the Deployment was scaled. `refusal`: where from, kind and reason, to report a refusal."""
        start, kind, reason = refusal
        try:
            self._api.scale(step.deployment, kinds.DEPLOYMENT, replicas)
        except ApiError as error:
            if error.code not in OTHERS_SCALED or (error.code == 422 and self._is_unchanged(step.deployment)):
                message = f"the API server refuses to scale the Deployment{start}: {error.message}"
                log.warning("%s", message)
                refuse(outcome, kind, error, message, reason)
            return False
        return True

    def _is_unchanged(self, deployment: Mapping[str, Any]) -> bool:
        """Returns whether the Deployment still has the number of servers that the operator knows."""
        metadata = deployment["metadata"]
        try:
            there = self._api.get(kinds.DEPLOYMENT, metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.unanswered:
                raise
            return False
        known = (metadata["uid"], deployment["spec"]["replicas"])
        return known == (there["metadata"]["uid"], there["spec"]["replicas"])
