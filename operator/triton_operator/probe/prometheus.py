"""Queries thresholds from Prometheus, in one query for all TritonModels."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter
from requests.exceptions import ConnectionError, JSONDecodeError, RequestException

from triton_operator.api.monitoring import Origins, ServerFault
from triton_operator.api.names import METRICS_JOB
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.promql import equal, tag
from triton_operator.render.rules.alerts import AT_MAX_QPS, FAILS, HANGS, NOT_COUNTED

from .fetch import FetchError, Limits, UnusableError

LIMITS = Limits(connect_seconds=2.0, total_seconds=3.0, body_bytes=4 << 20)
"""Limits of one query. The answer for a thousand TritonModels is smaller than 1 MiB."""
_METRICS = 50
"""Maximum number of metrics in one query."""
_RECENT = "5m"
"""How far back a metric counts: as far as the rules keep a load. A failed scrape ends every series of its server."""
Key = str
"""namespace/name of a TritonModel."""
Values = Mapping[ThresholdKey, float]
Measured = tuple[Key, str]
"""A TritonModel, and the name of a metric that it has."""
_MAX_MODELS, _MAX_NAME = 20, 256
T = TypeVar("T")


@dataclass(frozen=True)
class Alerts:
    """What the firing alerts say about one TritonModel. The fields are those of PrometheusAnswer."""

    uncounted: tuple[str, ...] = ()
    faults: tuple[ServerFault, ...] = ()
    at_limit: bool = False


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
    all. `job`: the label of the operator's metrics. Every method blocks for at most the time limit of `get` per query.
    Raises QueryError.
    """

    def __init__(
        self, url: str, get: Callable[[str], bytes], namespaces: Collection[str] = (), job: str = METRICS_JOB
    ) -> None:
        session = Session()
        session.trust_env = False
        self._client = PrometheusConnect(url, session=session)
        # Replaces the adapter that PrometheusConnect has mounted.
        session.mount(url, _Bounded(get))
        self._url = url
        chosen = f',namespace=~"{"|".join(sorted(namespaces))}"' if namespaces else ""
        self._ours = f'tritonmodel!=""{chosen}'
        # Operators of earlier versions have no uid.
        self._seen = f'triton_operator_resource_version{{{self._ours},{equal("job", job)},uid!=""}}'

    def thresholds(self) -> Mapping[Key, Values]:
        """The thresholds that the rules use."""
        return self._ask(f"tritonmodel:threshold:effective{{{self._ours}}}", _values)

    def metrics(self, names: Iterable[str]) -> frozenset[Measured]:
        """The TritonModels that have a metric with one of these names, or had it before the last scrapes failed."""
        measured, unique_names = set[Measured](), sorted(set(names))
        for start in range(0, len(unique_names), _METRICS):
            pattern = "|".join(map(re.escape, unique_names[start : start + _METRICS]))
            series = f'{{__name__=~"{pattern}",{self._ours}}}'
            query = f"count by (namespace,tritonmodel,__name__) (last_over_time({series}[{_RECENT}]))"
            measured |= self._ask(query, _measured)
        return frozenset(measured)

    def origins(self) -> Mapping[Key, Origins]:
        """The TritonModels whose series come from several clusters, or several times."""
        clusters = f"count by (namespace,tritonmodel) (count by (namespace,tritonmodel,uid) ({self._seen}))"
        copies = f"max by (namespace,tritonmodel) (count by (namespace,tritonmodel,uid,instance) ({self._seen}))"
        return self._ask(f"{tag(clusters, 'of', 'clusters')} > 1 or {tag(copies, 'of', 'copies')} > 1", _origins)

    def alerts(self) -> Mapping[Key, Alerts]:
        """What the firing alerts about models that answer nothing or aren't counted, and about limits, say."""
        names = "|".join((NOT_COUNTED, FAILS, HANGS, AT_MAX_QPS))
        return self._ask(f'ALERTS{{alertname=~"{names}",alertstate="firing",{self._ours}}}', _alerts)

    def _ask(self, query: str, read: Callable[[list[Any]], T]) -> T:
        try:
            return read(self._client.custom_query(query))
        except (JSONDecodeError, LookupError, TypeError, AttributeError, RecursionError):
            raise QueryError(f"the server at {self._url} is not a Prometheus") from None
        except (RequestException, PrometheusApiClientException, ValueError) as error:
            raise QueryError(f"no usable answer from Prometheus at {self._url}: {str(error)[:300]}") from None


def _values(series: list[Any]) -> Mapping[Key, Values]:
    values: dict[Key, dict[ThresholdKey, float]] = {}
    for sample in series:
        labels, value = sample["metric"], float(sample["value"][1])
        # Series of this name may also come from others.
        if {"namespace", "tritonmodel", "kind"} <= labels.keys():
            slots = values.setdefault(_key(labels), {})
            slots[ThresholdKey(labels["kind"], labels.get("version", ""))] = value
    return values


def _measured(series: list[Any]) -> frozenset[Measured]:
    metrics = (sample["metric"] for sample in series)
    return frozenset(
        (_key(labels), labels["__name__"]) for labels in metrics if {"namespace", "__name__"} <= labels.keys()
    )


def _origins(series: list[Any]) -> Mapping[Key, Origins]:
    numbers: dict[Key, dict[str, int]] = {}
    for sample in series:
        labels = sample["metric"]
        numbers.setdefault(_key(labels), {})[labels["of"]] = int(float(sample["value"][1]))
    return {key: Origins(**found) for key, found in numbers.items()}


def _alerts(series: list[Any]) -> Mapping[Key, Alerts]:
    models: dict[Key, set[str]] = {}
    faults: dict[Key, set[ServerFault]] = {}
    at_limit = set[Key]()
    for labels in (sample["metric"] for sample in series):
        # The servers choose the name of a model.
        name, model, pod = labels.get("alertname"), labels.get("model", "")[:_MAX_NAME], labels.get("pod", "")
        if "namespace" not in labels or (not model and name != AT_MAX_QPS):
            continue
        if name == AT_MAX_QPS:
            at_limit.add(_key(labels))
        elif name == NOT_COUNTED:
            models.setdefault(_key(labels), set()).add(model)
        elif pod:
            version = labels.get("version", "")[:_MAX_NAME]
            fault = ServerFault(pod[:_MAX_NAME], model, name == HANGS, version)
            faults.setdefault(_key(labels), set()).add(fault)
    return {
        key: Alerts(
            tuple(sorted(models.get(key, ()))[:_MAX_MODELS]),
            tuple(sorted(faults.get(key, ()))[:_MAX_MODELS]),
            key in at_limit,
        )
        for key in models.keys() | faults.keys() | at_limit
    }


def _key(labels: Mapping[str, str]) -> Key:
    return f"{labels['namespace']}/{labels['tritonmodel']}"
