"""Reads a TritonModel, its pods and its autoscaler with the user's kubeconfig."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kubernetes
import yaml

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster import proxy
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.pods import Pod

Object = dict[str, Any]
_EVENT = Kind("", "v1", "Event", "events")
_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")


_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class UnreachableError(Exception):
    """The cluster can't be read. The message is for the user. `code`: the HTTP status; 0 without an answer."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    @property
    def forbidden(self) -> bool:
        """Whether the user lacks a permission."""
        return self.code == 403


@dataclass(frozen=True)
class Cluster:
    """A connection to the API server, and the namespace of the user's choice. Every method raises UnreachableError.

    `configuration` is for clients of parts of the API that `api` doesn't have.
    """

    api: KubernetesApi
    namespace: str
    configuration: kubernetes.client.Configuration

    def within(self, namespace: str) -> Cluster:
        """Returns the same connection with another namespace."""
        return replace(self, namespace=namespace)

    def model(self, name: str) -> Object:
        """Returns the TritonModel."""
        try:
            return self.api.get(kinds.TRITON_MODEL, self.namespace, name)
        except ApiError as error:
            # Without the CRD the message has no name.
            where = f" in the namespace {self.namespace}: check the name, or use -n for another namespace"
            missing = error.code == 404 and name in error.message
            raise UnreachableError(error.message + (where if missing else ""), code=error.code) from error

    def models(self, namespace: str | None, most: int) -> list[Object]:
        """Returns at most this many TritonModels of the namespace; None means all namespaces."""
        with _errors():
            return list(itertools.islice(self.api.list(kinds.TRITON_MODEL, namespace, cached=True), most))

    def autoscalers(self, namespace: str | None, most: int) -> list[Object]:
        """Returns at most this many HorizontalPodAutoscalers of TritonModels."""
        with _errors():
            scalers = self.api.list(kinds.AUTOSCALER, namespace, names.LABEL_MODEL, cached=True)
            return list(itertools.islice(scalers, most))

    def pods(self, model: Object, most: int | None = None) -> list[Pod]:
        """Returns the pods of the TritonModel, at most this many."""
        selector = names.as_query(names.selector(model["metadata"]["name"]))
        with _errors():
            pods = self.api.list(kinds.POD, model["metadata"].get("namespace", self.namespace), selector)
            return [Pod(raw) for raw in itertools.islice(pods, most)]

    def events(self, regarding: Mapping[str, Any], most: int) -> list[Object]:
        """Returns at most this many Events about the object, in no order."""
        metadata = regarding["metadata"]
        with _errors():
            events = self.api.list(_EVENT, metadata["namespace"], fields=f"involvedObject.uid={metadata['uid']}")
            return list(itertools.islice(events, most))

    def autoscaler(self, model: Object) -> Object | None:
        """Returns the HorizontalPodAutoscaler.

        Returns None if there is none of this TritonModel, or if the user has no permission to read it.
        """
        name = model["metadata"]["name"]
        try:
            scaler = self.api.get(kinds.AUTOSCALER, self.namespace, name)
        except ApiError as error:
            if error.code in (403, 404):
                return None
            raise UnreachableError(error.message, code=error.code) from error
        return scaler if scaler["metadata"].get("labels", {}).get(names.LABEL_MODEL) == name else None

    def may_update(self, name: str) -> bool:
        """Returns whether the user may change the spec of the TritonModel."""
        return self.may("update", name)

    def may(self, verb: str, name: str) -> bool:
        """Returns whether the user may do `verb` with the TritonModel."""
        attributes = {
            "group": names.GROUP,
            "resource": names.PLURAL,
            "verb": verb,
            "namespace": self.namespace,
            "name": name,
        }
        body = {
            "apiVersion": _REVIEW.api_version,
            "kind": _REVIEW.kind,
            "spec": {"resourceAttributes": attributes},
        }
        with _errors():
            return bool(self.api.create(_REVIEW, "", body).get("status", {}).get("allowed"))


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raises UnreachableError for an error of the API server."""
    try:
        yield
    except ApiError as error:
        raise UnreachableError(error.message, code=error.code) from error


def connect(namespace: str | None, context: str | None) -> Cluster:
    """Returns a connection with the kubeconfig. Sends no request. Raises UnreachableError.

    In a pod without a kubeconfig it uses the pod's ServiceAccount and namespace.
    """
    configuration = kubernetes.client.Configuration()
    configuration.proxy = None  # Only a kubeconfig's stays.
    if context is None and _in_pod():
        kubernetes.config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        namespace = namespace or _POD_NAMESPACE.read_text().strip()
    else:
        context = context or _current_context()
        try:
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
                context=context, client_configuration=configuration
            )
            contexts, current = kubernetes.config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
        except kubernetes.config.ConfigException as error:
            raise UnreachableError(f"no usable kubeconfig: {error}") from error
        entry = next((c for c in contexts if c["name"] == context), current)
        namespace = namespace or entry["context"].get("namespace", "default")
    proxy.choose(configuration, os.environ)
    return Cluster(KubernetesApi(kubernetes.client.ApiClient(configuration)), namespace, configuration)


def _current_context() -> str | None:
    """Returns the current context as kubectl chooses it among several files: that of the first file which has one.

    The client takes the last one. Returns None to leave it to the client, and a file that can't be read, too.
    """
    files = _kubeconfigs()
    for file in files if len(files) > 1 else ():
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
            config = yaml.safe_load(file.read_text())
            if isinstance(config, dict) and config.get("current-context"):
                return str(config["current-context"])
    return None


def _in_pod() -> bool:
    """Returns whether this is a pod with a ServiceAccount and without a kubeconfig."""
    return _POD_NAMESPACE.exists() and not any(file.exists() for file in _kubeconfigs())


def _kubeconfigs() -> list[Path]:
    """Returns the files of $KUBECONFIG, which may not exist."""
    names = kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)
    return [Path(name).expanduser() for name in names if name]
