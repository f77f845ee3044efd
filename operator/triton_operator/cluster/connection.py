"""The connections to one API server.

The `kubernetes` client provides connections, TLS, and credentials with their renewal. Its code that builds requests
isn't used, because that costs half as much as sending the request.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import kubernetes
import orjson
import urllib3
import urllib3.exceptions

from triton_operator.api import names

from . import proxy
from .errors import ApiError, no_answer, refusal

Object = dict[str, Any]
OnRequest = Callable[[str, str, int], None]
"""(verb, plural, code): called after each request; `code` is 0 if there was no answer."""
CONNECT_SECONDS, READ_SECONDS = 3.05, 20.0
"""Time limits. By default the client waits without a limit."""
MAX_BYTES = 32 << 20
"""Maximum size of one answer. etcd accepts objects of 1.5 MiB, and their JSON can be six times as large."""
JSON = "application/json"


def client_of_environment(connections: int) -> kubernetes.client.ApiClient:
    """Returns a client with the pod's ServiceAccount, otherwise with the kubeconfig.

    `connections`: the number of connections that it keeps open at most.
    """
    configuration = kubernetes.client.Configuration()
    configuration.proxy = None  # Only a kubeconfig's stays.
    try:
        kubernetes.config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except kubernetes.config.ConfigException:
        kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    proxy.choose(configuration, os.environ)
    configuration.connection_pool_maxsize = connections
    return kubernetes.client.ApiClient(configuration)


class Connection:
    """Sends requests to the API server of `client`. Safe to use from several threads."""

    def __init__(self, client: kubernetes.client.ApiClient, on_request: OnRequest) -> None:
        self._client, self.on_request = client, on_request
        self._may_write: Callable[[], bool] = lambda: True
        # There is one API server, so its connection pool is looked up only once.
        self._connections = client.rest_client.pool_manager.connection_from_url(client.configuration.host)
        self._prefix = urlsplit(client.configuration.host).path.rstrip("/")

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._client.configuration.host)

    @property
    def proxy(self) -> urllib3.util.Url | None:
        """The proxy that the connections use, perhaps with credentials."""
        return self._client.rest_client.pool_manager.proxy

    def fenced(self, may_write: Callable[[], bool]) -> Connection:
        """Returns the same connection, which calls `may_write` before each write.

        If that returns False, the write isn't sent and raises ApiError with the reason NotLeading.
        """
        fenced = copy.copy(self)
        fenced._may_write = may_write
        return fenced

    def send(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        query: dict[str, str] | None = None,
        body: Object | bytes | None = None,
        content_type: str = JSON,
        verb: str = "",
        accept: str = JSON,
        max_bytes: int = MAX_BYTES,
    ) -> bytes:
        """Returns the body of the answer, cut off after `max_bytes` + 1 bytes. Raises ApiError."""
        verb = verb or method
        with self.open(
            method, path, plural, query=query, body=body, content_type=content_type, verb=verb, accept=accept
        ) as response:
            # The connection is reused if the whole response was read; otherwise it is closed.
            try:
                data = read_body(response, max_bytes + 1)
            except ApiError:
                self.on_request(verb, plural, 0)
                raise
        self.on_request(verb, plural, response.status)
        if response.status >= 400:
            raise refusal(response.status, data, response.headers.get("Retry-After", ""))
        return data

    def open(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        verb: str,
        query: dict[str, str] | None = None,
        body: Object | bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        read_seconds: float = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        """Sends a request; returns the response with its body still to be read. Raises ApiError without one."""
        if method != "GET" and not self._may_write():
            raise ApiError(0, "NotLeading", "this replica no longer holds the Lease, so it writes nothing")
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": names.FIELD_MANAGER}
        # auth_settings() renews the token.
        headers |= {str(s["key"]): str(s["value"]) for s in self._client.configuration.auth_settings().values()}
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            return self._connections.urlopen(
                method,
                self._prefix + target,
                body=orjson.dumps(body) if isinstance(body, dict) else body,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                # The work queue retries. urllib3 would retry three times, and sleep as long as Retry-After requests.
                retries=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.on_request(verb, plural, 0)
            raise no_answer(error) from error


def read_body(response: urllib3.BaseHTTPResponse, max_bytes: int) -> bytes:
    """Returns up to `max_bytes` of an answer. Raises ApiError."""
    try:
        return response.read(max_bytes)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise no_answer(error) from error
