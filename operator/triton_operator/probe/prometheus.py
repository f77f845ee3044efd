"""What Prometheus says about thresholds: one query for all TritonModels that it evaluates the rules of."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import PreparedRequest, Response, Session
from requests.exceptions import ConnectionError, JSONDecodeError, ReadTimeout, RequestException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from triton_operator.api.thresholds import ThresholdKey

TIMEOUT_SECONDS = 3.0
MAX_BYTES = 4 << 20
"""Of one answer. A thousand TritonModels make less than one MiB."""
_COUNTERS = 50
"""Names of counters in one query."""
Key = str
"""namespace/name of a TritonModel."""
Values = Mapping[ThresholdKey, float]
Counted = tuple[Key, str]
"""A TritonModel, and the name of a counter that it has."""
T = TypeVar("T")


class QueryError(Exception):
    """Prometheus gives no usable answer; the message says why, in words that stay the same from one to the next."""


class _LimitedSession(Session):
    """A session whose answers are limited in time and size, and that follows no redirect: requests' own timeout is
    the one between two bytes, and it would read the body of each redirect to its end."""

    def get_redirect_target(self, resp: Response) -> str | None:  # noqa: ARG002
        return None

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        until = time.monotonic() + TIMEOUT_SECONDS
        response = super().send(request, **{**options, "stream": True})
        body = bytearray()
        try:
            while part := response.raw.read1(64 << 10, decode_content=True):
                body += part
                if len(body) > MAX_BYTES or time.monotonic() > until:
                    raise ReadTimeout(f"no end of the answer within {TIMEOUT_SECONDS:g} s and {MAX_BYTES >> 20} MiB")
            # As requests does it itself; it has no other way in.
            response._content, response._content_consumed = bytes(body), True
        except HTTPError as error:
            raise ConnectionError(str(error)) from error
        finally:
            response.close()
        return response


class Client:
    """Queries of one Prometheus. `namespaces`: of these only, where there are any. Every method blocks for some
    seconds at most, and raises QueryError."""

    def __init__(self, url: str, namespaces: Collection[str] = ()) -> None:
        self._url = url
        self._client = PrometheusConnect(url, retry=Retry(total=0), timeout=TIMEOUT_SECONDS, session=_LimitedSession())
        chosen = f',namespace=~"{"|".join(sorted(namespaces))}"' if namespaces else ""
        self._ours = f'tritonmodel!=""{chosen}'

    def thresholds(self) -> Mapping[Key, Values]:
        """The thresholds that the rules compare with."""
        return self._ask(f"triton:threshold{{{self._ours}}}", _values)

    def counters(self, names: Iterable[str]) -> frozenset[Counted]:
        """Which TritonModels have a counter of one of these names."""
        found, wanted = set[Counted](), sorted(set(names))
        for start in range(0, len(wanted), _COUNTERS):
            pattern = "|".join(map(re.escape, wanted[start : start + _COUNTERS]))
            query = f'count by (namespace,tritonmodel,__name__) ({{__name__=~"{pattern}",{self._ours}}})'
            found |= self._ask(query, _counted)
        return frozenset(found)

    def _ask(self, query: str, read: Callable[[list[Any]], T]) -> T:
        try:
            return read(self._client.custom_query(query))
        except (JSONDecodeError, LookupError, TypeError, AttributeError, RecursionError):
            raise QueryError(f"what answers at {self._url} is no Prometheus") from None
        except (RequestException, PrometheusApiClientException, ValueError) as error:
            raise QueryError(f"Prometheus doesn't answer at {self._url}: {_why(error)}") from None


def _values(series: list[Any]) -> Mapping[Key, Values]:
    found: dict[Key, dict[ThresholdKey, float]] = {}
    for one in series:
        labels, value = one["metric"], float(one["value"][1])
        # Others may have series of that name too.
        if {"namespace", "tritonmodel", "kind"} <= labels.keys():
            slots = found.setdefault(_key(labels), {})
            slots[ThresholdKey(labels["kind"], labels.get("version", ""))] = value
    return found


def _counted(series: list[Any]) -> frozenset[Counted]:
    labels = (one["metric"] for one in series)
    return frozenset((_key(one), one["__name__"]) for one in labels if {"namespace", "__name__"} <= one.keys())


def _key(labels: Mapping[str, str]) -> Key:
    return f"{labels['namespace']}/{labels['tritonmodel']}"


def _why(error: Exception) -> str:
    """The failure without addresses of objects and counts of tries, which differ from one to the next."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    text = str(reason or error)
    # An answer's body may hold a time or the number of a request.
    status = re.match(r"HTTP Status Code \d+", text)
    return (status[0] if status else text.rpartition(">: ")[2][:300]) or type(error).__name__
