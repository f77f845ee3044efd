"""Asks the API server which pod has an address."""

from __future__ import annotations

import logging

from triton_operator.api import kinds
from triton_operator.api.servers import RunningServer

from .api import KubernetesApi
from .errors import ApiError

_log = logging.getLogger(__name__)


class Addresses:
    """What the API server says now. A watch that hangs says it a minute later, when another pod may have the address.

    Safe to use from several threads.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    def holds(self, key: str, server: RunningServer) -> bool:
        """Returns whether the server's pod has the server's address; False if the API server doesn't answer.

        `key`: that of its TritonModel (namespace/name). Needs only the permission to list pods.
        """
        try:
            pods = [*self._api.list(kinds.POD, key.partition("/")[0], fields=f"metadata.name={server.pod}")]
        except ApiError as error:
            _log.warning("can't check the address of %s: %s", server.pod, error.message, extra={"key": key})
            return False
        return any(
            pod["metadata"]["uid"] == server.uid and pod.get("status", {}).get("podIP") == server.host.strip("[]")
            for pod in pods
        )
