"""The way from KEDA to another engine."""

from __future__ import annotations

import logging
from typing import Any

from triton_operator.api import kinds
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import ApiError, KubernetesApi

from .direct import OTHERS_SCALED

Object = dict[str, Any]


def wake_up(
    api: KubernetesApi,
    model: TritonModel,
    deployment: Object | None,
    scaled_object: Object | None,
    log: logging.LoggerAdapter[logging.Logger],
) -> None:
    """Starts the minimum of servers if KEDA has scaled to zero and another engine follows.

    A HorizontalPodAutoscaler never scales from zero. Call this before the ScaledObject is deleted and for as long as it
    exists, because until then KEDA may scale to zero again. Raises ApiError for failures that a retry may fix.
    """
    wanted = model.scaling
    if wanted is None or model.is_keda or deployment is None or scaled_object is None:
        return
    if deployment["spec"]["replicas"] or scaled_object["spec"].get("minReplicaCount"):
        return
    try:
        api.scale(deployment, kinds.DEPLOYMENT, wanted.min)
        log.info("scaled from 0 to %d servers, because KEDA doesn't scale them any more", wanted.min)
    except ApiError as error:
        if error.transient:
            raise
        if error.code not in OTHERS_SCALED:
            log.warning("could not scale from 0: %s", error.message)
