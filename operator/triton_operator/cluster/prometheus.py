"""What Prometheuses say of thresholds: each is asked once for all TritonModels, and not by each of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import PreparedRequest, Response, Session
from requests.exceptions import ConnectionError, JSONDecodeError, ReadTimeout, RequestException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from triton_operator.api.monitoring import Answer
from triton_operator.api.thresholds import Slot

TIMEOUT_SECONDS = 3
LARGEST = 64 << 20
"""Bytes of an answer. A thousand TritonModels make less than one MiB."""
SHARED_SECONDS = 1.0
"""For how long what one TritonModel was told is good enough for the others."""
SPARED_SECONDS = 10.0
"""How long a Prometheus that didn't answer isn't asked again: every pass would wait for it."""
Key = str
"""namespace/name of a TritonModel."""
Values = Mapping[Slot, float]
T = TypeVar("T")


class _Bounded(Session):
    """Every answer ends, in time and within a size: `timeout` alone is what passes between two bytes. Which Prometheus
    is asked is up to whoever may make one."""

    def send(self, request: PreparedRequest, **more: Any) -> Response:
        until = time.monotonic() + TIMEOUT_SECONDS
        response = super().send(request, **{**more, "stream": True})
        body = bytearray()
        try:
            while part := response.raw.read1(decode_content=True):
                body += part
                if len(body) > LARGEST or time.monotonic() > until:
                    raise ReadTimeout(f"no end of the answer within {TIMEOUT_SECONDS} s and {LARGEST >> 20} MiB")
            # As requests does it itself; it has no other way in.
            response._content, response._content_consumed = bytes(body), True
        except HTTPError as error:
            raise ConnectionError(str(error)) from error
        finally:
            response.close()
        return response


@dataclass
class _Source:
    """One Prometheus. `values` are its last ones, `error` why there are none since; `until`: when to ask again."""

    client: PrometheusConnect
    values: Mapping[Key, Values] = field(default_factory=dict)
    error: str = "Prometheus hasn't answered yet"
    until: float | None = None
    asking: threading.Lock = field(default_factory=threading.Lock)


class Prometheuses:
    """The thresholds that Prometheuses compare with. Safe to use from several threads; nothing here raises.

    `namespaces`: of these only, where there are any.
    """

    def __init__(self, namespaces: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        chosen = f',namespace=~"{"|".join(sorted(namespaces))}"' if namespaces else ""
        self._query, self._clock, self._lock = f'triton:threshold{{tritonmodel!=""{chosen}}}', clock, threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._told: dict[Key, tuple[str, Values | None]] = {}

    def ask(self, url: str, key: Key, token_counter: str = "") -> Answer:
        """What the Prometheus at `url` says of the TritonModel `key`, a second old at most. What it says later is
        `news`, until `settled`."""
        source = self._source(url)
        self._refresh(url, source)
        error, values = source.error, source.values.get(key, {})
        with self._lock:
            self._told[key] = url, None if error else values
        tokens: bool | None = False
        if token_counter and not error:
            namespace, name = key.split("/")
            own = f'namespace="{namespace}",tritonmodel="{name}",__name__="{token_counter}"'
            tokens, error = _ask(url, source.client, f"count({{{own}}})", bool)
        return Answer(error=error) if error else Answer(values, bool(tokens))

    def settled(self, key: Key) -> None:
        """What is said of `key` is no news any more."""
        with self._lock:
            self._told.pop(key, None)

    def news(self) -> list[Key]:
        """Asks anew, where there is somebody to tell: of which TritonModels something else is said than was told."""
        with self._lock:
            told = dict(self._told)
        for url in {url for url, _ in told.values()}:
            self._refresh(url, self._source(url))
        found = []
        with self._lock:
            for key, (url, before) in told.items():
                source = self._sources[url]
                said = source.values.get(key, {})
                if not source.error and said != before and self._told.get(key) == (url, before):
                    found.append(key)
                    # Once only: whoever can't take it now looks again by itself.
                    self._told[key] = url, said
        return found

    def _source(self, url: str) -> _Source:
        with self._lock:
            if url not in self._sources:
                client = PrometheusConnect(url, retry=Retry(total=0), timeout=TIMEOUT_SECONDS, session=_Bounded())
                self._sources[url] = _Source(client)
            return self._sources[url]

    def _refresh(self, url: str, source: _Source) -> None:
        """Asks, unless it is known; where somebody else is asking, what was said before is as good."""
        if not source.asking.acquire(timeout=TIMEOUT_SECONDS if source.until is None else 0):
            return
        try:
            if source.until is not None and self._clock() < source.until:
                return
            found, source.error = _ask(url, source.client, self._query, _values)
            source.values = source.values if found is None else found
            source.until = self._clock() + (SPARED_SECONDS if source.error else SHARED_SECONDS)
        finally:
            source.asking.release()


def _ask(url: str, client: PrometheusConnect, query: str, read: Callable[[list[Any]], T]) -> tuple[T | None, str]:
    """What `read` makes of the answer, or why there is none."""
    try:
        return read(client.custom_query(query)), ""
    except (JSONDecodeError, LookupError, TypeError, AttributeError, RecursionError):
        return None, f"what answers at {url} is no Prometheus"
    except (RequestException, PrometheusApiClientException, ValueError) as error:
        return None, f"Prometheus doesn't answer at {url}: {_why(error)}"


def _values(series: list[Any]) -> Mapping[Key, Values]:
    found: dict[Key, dict[Slot, float]] = {}
    for one in series:
        labels, value = one["metric"], float(one["value"][1])
        # Others may have series of that name too.
        if {"namespace", "tritonmodel", "kind"} <= labels.keys():
            slots = found.setdefault(f"{labels['namespace']}/{labels['tritonmodel']}", {})
            slots[Slot(labels["kind"], labels.get("version", ""))] = value
    return found


def _why(error: Exception) -> str:
    """The failure without addresses of objects and counts of tries, which differ from one to the next."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    text = str(reason or error)
    # An answer's body may hold a time or the number of a request.
    status = re.match(r"HTTP Status Code \d+", text)
    return (status[0] if status else text.rpartition(">: ")[2][:300]) or type(error).__name__
