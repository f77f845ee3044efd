"""Queries thresholds from Prometheus, in one query for all TritonModels."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter
from requests.exceptions import ConnectionError, JSONDecodeError, RequestException

from triton_operator.api import names
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render.rules.alerts import NOT_COUNTED
from triton_operator.render.rules.churn import series_churn

from .fetch import FetchError, Limits, UnusableError

LIMITS = Limits(connect_seconds=2.0, total_seconds=3.0, body_bytes=4 << 20)
"""Limits of one query. The answer for a thousand TritonModels is smaller than 1 MiB."""
_COUNTERS = 50
"""Maximum number of counter names in one query."""
Key = str
"""namespace/name of a TritonModel."""
Values = Mapping[ThresholdKey, float]
Counted = tuple[Key, str]
"""A TritonModel, and the name of a counter that it has."""
Uncounted = Mapping[Key, tuple[str, ...]]
"""The models whose requests aren't counted."""
_MAX_MODELS, _MAX_NAME = 20, 256
T = TypeVar("T")


class QueryError(Exception):
    """There is no usable answer. The message gives the reason, and is the same each time for the same reason."""


class _Bounded(BaseAdapter):
    """A transport adapter for `requests` with limits.

    `requests` itself limits neither the time nor the size of a response, and decompresses it.
    """

    def __init__(self, get: Callable[[str], bytes]) -> None:
        super().__init__()
        self._get = get

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        response = Response()
        try:
            response.raw = io.BytesIO(self._get(request.url or ""))
        except FetchError as error:
            raise ConnectionError(f"it {error}" if isinstance(error, UnusableError) else str(error)) from error
        response.status_code = 200
        return response

    def close(self) -> None:
        """Does nothing, because no connection stays open."""


class Client:
    """Queries one Prometheus.

    `get`: fetches a URL within limits, or raises FetchError. `namespaces`: limits the queries to these; empty means
    all. `sample_limit`: the maximum number of samples of one scrape of a server. Every method blocks for at most the
    time limit of `get` per query. Raises QueryError.
    """

    def __init__(
        self,
        url: str,
        get: Callable[[str], bytes],
        namespaces: Collection[str] = (),
        sample_limit: int = names.SAMPLE_LIMIT,
    ) -> None:
        session = Session()
        session.trust_env = False
        self._client = PrometheusConnect(url, session=session)
        # Replaces the adapter that PrometheusConnect has mounted.
        session.mount(url, _Bounded(get))
        self._shown = re.sub(r"//[^/@]*@", "//", url)
        chosen = f',namespace=~"{"|".join(sorted(namespaces))}"' if namespaces else ""
        self._ours, self._sample_limit = f'tritonmodel!=""{chosen}', sample_limit

    def thresholds(self) -> Mapping[Key, Values]:
        """The thresholds that the rules use."""
        return self._ask(f"tritonmodel:threshold:effective{{{self._ours}}}", _values)

    def counters(self, names: Iterable[str]) -> frozenset[Counted]:
        """The TritonModels that have a counter with one of these names."""
        found, wanted = set[Counted](), sorted(set(names))
        for start in range(0, len(wanted), _COUNTERS):
            pattern = "|".join(map(re.escape, wanted[start : start + _COUNTERS]))
            query = f'count by (namespace,tritonmodel,__name__) ({{__name__=~"{pattern}",{self._ours}}})'
            found |= self._ask(query, _counted)
        return frozenset(found)

    def churning(self) -> frozenset[Key]:
        """The TritonModels with a server that replaces its series."""
        return self._ask(series_churn(self._sample_limit, self._ours), _keys)

    def uncounted(self) -> Uncounted:
        """The models whose requests aren't counted, as the firing alerts say."""
        return self._ask(f'ALERTS{{alertname="{NOT_COUNTED}",alertstate="firing",{self._ours}}}', _models)

    def _ask(self, query: str, read: Callable[[list[Any]], T]) -> T:
        try:
            return read(self._client.custom_query(query))
        except (JSONDecodeError, LookupError, TypeError, AttributeError, RecursionError):
            raise QueryError(f"the server at {self._shown} is not a Prometheus") from None
        except (RequestException, PrometheusApiClientException, ValueError) as error:
            raise QueryError(f"no usable answer from Prometheus at {self._shown}: {str(error)[:300]}") from None


def _values(series: list[Any]) -> Mapping[Key, Values]:
    found: dict[Key, dict[ThresholdKey, float]] = {}
    for one in series:
        labels, value = one["metric"], float(one["value"][1])
        # Series of this name may also come from others.
        if {"namespace", "tritonmodel", "kind"} <= labels.keys():
            slots = found.setdefault(_key(labels), {})
            slots[ThresholdKey(labels["kind"], labels.get("version", ""))] = value
    return found


def _counted(series: list[Any]) -> frozenset[Counted]:
    labels = (one["metric"] for one in series)
    return frozenset((_key(one), one["__name__"]) for one in labels if {"namespace", "__name__"} <= one.keys())


def _keys(series: list[Any]) -> frozenset[Key]:
    labels = (one["metric"] for one in series)
    return frozenset(_key(one) for one in labels if "namespace" in one)


def _models(series: list[Any]) -> Uncounted:
    found: dict[Key, set[str]] = {}
    for labels in (one["metric"] for one in series):
        if {"namespace", "model"} <= labels.keys():
            found.setdefault(_key(labels), set()).add(labels["model"][:_MAX_NAME])
    return {key: tuple(sorted(models)[:_MAX_MODELS]) for key, models in found.items()}


def _key(labels: Mapping[str, str]) -> Key:
    return f"{labels['namespace']}/{labels['tritonmodel']}"
