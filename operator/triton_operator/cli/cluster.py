"""Reads a TritonModel and its pods with the user's kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kubernetes

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError, KubernetesApi

Object = dict[str, Any]
_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")


class UnreachableError(Exception):
    """The cluster can't be read. The message is for the user."""


@dataclass(frozen=True)
class Cluster:
    """A connection to the API server, and the namespace of the user's choice."""

    api: KubernetesApi
    namespace: str

    def fetch(self, name: str) -> tuple[Object, list[Object]]:
        """Returns the TritonModel and its pods. Raises UnreachableError."""
        try:
            model = self.api.get(kinds.TRITON_MODEL, self.namespace, name)
            # The status has no selector until the operator has created the pods.
            selector = model.get("status", {}).get("selector") or names.as_query(names.selector(name))
            return model, list(self.api.list(kinds.POD, self.namespace, selector))
        except ApiError as error:
            raise UnreachableError(error.message) from error

    def may_update(self, name: str) -> bool:
        """Returns whether the user may change the spec of the TritonModel. Raises UnreachableError."""
        asked = {
            "group": names.GROUP,
            "resource": names.PLURAL,
            "verb": "update",
            "namespace": self.namespace,
            "name": name,
        }
        body = {
            "apiVersion": _REVIEW.api_version,
            "kind": _REVIEW.kind,
            "spec": {"resourceAttributes": asked},
        }
        try:
            return bool(self.api.create(_REVIEW, "", body).get("status", {}).get("allowed"))
        except ApiError as error:
            raise UnreachableError(error.message) from error


def connect(namespace: str | None, context: str | None) -> Cluster:
    """Returns a connection with the kubeconfig. Sends no request. Raises UnreachableError."""
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
    return Cluster(KubernetesApi(kubernetes.client.ApiClient(configuration)), namespace)
