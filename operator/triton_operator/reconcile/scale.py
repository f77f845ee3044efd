"""Does the steps that change a Deployment's number of servers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from triton_operator.api import kinds
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.steps import ScaleUp, WakeUp

from .refusals import refuse

OTHERS_SCALED = (404, 409, 422)
"""HTTP statuses that mean that the number of servers, or the Deployment, has changed meanwhile."""
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
        """Starts servers after another engine has scaled to zero."""
        if self._scale(step, step.replicas, (" from 0", kinds.DEPLOYMENT.kind, "ApplyRefused"), outcome, log):
            log.info("scaled from 0 to %d servers, because another engine had scaled them to 0", step.replicas)

    def _scale(
        self, step: ScaleUp | WakeUp, replicas: int, refusal: tuple[str, str, str], outcome: Outcome, log: Log
    ) -> bool:
        """Returns whether the Deployment was scaled. `refusal`: where from, kind and reason, to report a refusal."""
        start, kind, reason = refusal
        try:
            self._api.scale(step.deployment, kinds.DEPLOYMENT, replicas)
        except ApiError as error:
            if error.code not in OTHERS_SCALED:
                message = f"the API server refuses to scale the Deployment{start}: {error.message}"
                log.warning("%s", message)
                refuse(outcome, kind, error, message, reason)
            return False
        return True
