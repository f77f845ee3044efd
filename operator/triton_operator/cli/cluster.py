"""Reads a TritonModel and its pods with the user's kubeconfig."""

from __future__ import annotations

from typing import Any

import kubernetes

from triton_operator.api import kinds, names
from triton_operator.cluster.api import ApiError, KubernetesApi

Object = dict[str, Any]


class UnreachableError(Exception):
    """The cluster can't be read. The message is for the user."""


def fetch(name: str, namespace: str | None, context: str | None) -> tuple[Object, list[Object]]:
    """Returns the TritonModel and its pods. Raises UnreachableError."""
    configuration = kubernetes.client.Configuration()
    try:
        kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
            context=context, client_configuration=configuration
        )
        contexts, current = kubernetes.config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except kubernetes.config.ConfigException as error:
        raise UnreachableError(f"no usable kubeconfig: {error}") from error
    used = next((c for c in contexts if c["name"] == context), current)
    namespace = namespace or used["context"].get("namespace", "default")
    api = KubernetesApi(kubernetes.client.ApiClient(configuration))
    try:
        model = api.get(kinds.TRITON_MODEL, namespace, name)
        # The status has no selector until the operator has created the pods.
        selector = model.get("status", {}).get("selector") or names.as_query(names.selector(name))
        return model, list(api.list(kinds.POD, namespace, selector))
    except ApiError as error:
        raise UnreachableError(error.message) from error
