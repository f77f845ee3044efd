"""A real Prometheus scrapes hostile servers with the configuration of the PodMonitor.

Their metrics pages have forged series, too many series or no end. They must not change a threshold or an alert of
another TritonModel, or make a rule fail.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import bad_servers, gen
from support.api import eventually
from support.prometheus_process import Prometheus, running, scrape_config, serving
from triton_operator.api import names
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.render.facts import Facts, RenderSettings
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rule

pytestmark = pytest.mark.rules

FACTS = Facts(
    "operator:1", "Copy", entrypoint="net", thresholds={ThresholdKey("max-qps"): 80.0},
    settings=RenderSettings(sample_limit=3000),
)  # fmt: skip
"""With a limit that an administrator sets where tenants are hostile."""
MIB = 1 << 20
HONEST, EVIL = "sound", "vision"
OF_THE_HONEST = f'namespace="{HONEST}",tritonmodel="{gen.NAME}"'
INJECTION = r"version=\"\"} or up{x=\""

RESERVED = f"""\
triton_operator_threshold{{{OF_THE_HONEST},kind="max-qps",version=""}} 1e9
triton_operator_threshold{{kind="max-qps",version=""}} 1e9
triton_operator_resource_version{{{OF_THE_HONEST}}} 1e15
triton_operator_resource_version 1e15
triton_operator_thresholds_invalid 7
tritonmodel:threshold:effective{{kind="max-qps"}} 1e9
tritonmodel:servers:ready 0
tritonmodel:demand:rate1m{{version="1"}} 0
tritonmodel:autoscaler_load_replicas:max 1e9
ALERTS{{alertname="TritonModelQpsOverflow",alertstate="firing"}} 1
ALERTS_FOR_STATE{{alertname="x"}} 1
up{{forged="yes"}} 0
scrape_samples_scraped{{forged="yes"}} 0
"""
LABELS = f"""\
nv_inference_request_success{{model="net",version="1",{OF_THE_HONEST},job="{names.METRICS_JOB}",pod="x"}} 1e12
nv_inference_request_success{{model="net",version="2",exported_namespace="{HONEST}",instance="forged"}} 1e12
nv_inference_request_success{{model="net",version="{INJECTION}"}} 1e12
nv_inference_request_success{{model="net",version="v1"}} 1e12
nv_inference_request_success{{model="net",version="99999999999999999999"}} 1e12
nv_inference_request_failure{{model="net",version="1",reason="{{{{ query \\"up\\" }}}}"}} 1e12
nv_inference_pending_request_count{{model="net",version="1",severity="critical",alertname="x"}} 1e12
"""
VALUES = "".join(
    f'{metric}{{model="net",version="{version}"}} {value}\n'
    for metric in ("nv_inference_request_success", "nv_inference_pending_request_count")
    for version, value in enumerate(("NaN", "+Inf", "-Inf", "-1e308", "1e308"))
)
HISTOGRAM = 'nv_inference_request_success_bucket{model="net",version="1",le="x"} 1\n' * 3
NAME_AS_LABEL = 'harmless{__name__="tritonmodel:threshold:effective",kind="max-qps"} 1e9\n'
TIMES = (
    "# TYPE nv_inference_request_success counter\n"
    'nv_inference_request_success_total{model="net",version="1"} 1e12 9999999999\n'
    'nv_inference_request_success_total{model="net",version="3"} 1e12 1\n'
    'nv_inference_request_success_total{model="net",version="4"} 1e12 # {trace_id="' + "x" * 100 + '"} 1 9999999999\n'
    "# EOF\n"
)


def many(samples: int, *, fresh: bool = False) -> Any:
    """Returns a page with this number of series. `fresh`: each scrape returns new series."""
    turns = itertools.count()

    def page() -> str:
        turn = next(turns) if fresh else 0
        return "".join(f'nv_made_up{{model="m{turn}-{number}"}} 1\n' for number in range(samples))

    return page


def trickling(content: str) -> bad_servers.Behaviour:
    """Returns an endless response that starts with this body."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n" + content.encode())
        while not over.is_set():
            connection.sendall(b'nv_made_up{model="x"} 1\n' * 2000)

    return behave


def open_metrics(text: str) -> bad_servers.Behaviour:
    """Returns a page in OpenMetrics, with timestamps and exemplars."""

    def behave(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        connection.sendall(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())

    return behave


@contextlib.contextmanager
def hostile_pages(operators: str) -> Iterator[dict[str, str]]:
    """Yields the addresses of the hostile servers, by behavior. `operators`: the address of the operator's metrics."""
    pages = {
        "reserved": lambda: RESERVED,
        "labels": lambda: LABELS,
        "values": lambda: VALUES,
        "histogram": lambda: HISTOGRAM,
        "name-as-label": lambda: NAME_AS_LABEL,
        "no-metrics": lambda: "\x00\xff hello {{{",
        "many": many(100_000),
        "long-value": lambda: f'nv_made_up{{model="{"x" * MIB}"}} 1\n',
        "long-name": lambda: f'nv_made_up{{{"x" * MIB}="1"}} 1\n',
        "many-labels": lambda: "nv_made_up{" + ",".join(f'l{n}="1"' for n in range(10_000)) + "} 1\n",
    }
    behaviours = {
        "endless": trickling(RESERVED),
        "floods": bad_servers.floods,
        "hangs": bad_servers.hangs,
        "times": open_metrics(TIMES),
        "compressed": bad_servers.bombs(1),
        "redirects": bad_servers.redirects(f"http://{operators}/metrics"),
    }
    with contextlib.ExitStack() as stack:
        by_address = {stack.enter_context(serving({"/metrics": page})): name for name, page in pages.items()}
        for name, behave in behaviours.items():
            by_address[stack.enter_context(bad_servers.server("127.0.0.1", behave, 0)).address] = name
        yield by_address


def operators_page() -> str:
    lines = []
    for namespace, limit in ((HONEST, 80), (EVIL, 90)):
        whose = f'namespace="{namespace}",tritonmodel="{gen.NAME}"'
        lines += [
            f'triton_operator_threshold{{{whose},kind="max-qps",version=""}} {limit}',
            f'triton_operator_threshold{{{whose},kind="ensemble-coefficient",version=""}} 1',
            f'triton_operator_threshold{{{whose},kind="spike-factor",version=""}} 3',
            f'triton_operator_resource_version{{{whose},uid="0a1b2c3d"}} 100',
        ]
    return "\n".join(lines) + "\n"


def honest_page() -> str:
    """Returns the metrics of a server that gets 1,000 requests per second."""
    served = round(time.monotonic() * 1000)
    return (
        f'nv_inference_request_success{{model="net",version="1"}} {served}\n'
        'nv_inference_request_failure{model="net",version="1",reason="OTHER"} 0\n'
    )


def model(namespace: str) -> Any:
    return gen.model(gen.put("metadata.namespace", namespace))


def rules() -> list[dict[str, Any]]:
    return [
        {**group, "name": f"{namespace}-{group['name']}"}
        for namespace in (HONEST, EVIL)
        for group in prometheus_rule(model(namespace), FACTS)["spec"]["groups"]
    ]


@contextlib.contextmanager
def scene(folder: Path, evil: dict[str, str], operators: str) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes the operator, an honest TritonModel, and a TritonModel with hostile servers."""
    with serving({"/metrics": honest_page}) as honest, serving({"/metrics": honest_page}) as other:
        configs = [
            {"job_name": names.METRICS_JOB, "honor_labels": True, "static_configs": [{"targets": [operators]}]},
            *scrape_config(pod_monitor(model(HONEST), FACTS), {honest: "honest"}),
            *scrape_config(pod_monitor(model(EVIL), FACTS), {other: "good", **evil}),
        ]
        with running(folder, configs, rules()) as prometheus:
            yield prometheus


def thresholds(prometheus: Prometheus) -> dict[tuple[str, ...], float]:
    samples = prometheus.ask("query", query="tritonmodel:threshold:effective")["result"]
    label = ("namespace", "tritonmodel", "kind", "version", "job", "pod")
    return {tuple(sample["metric"].get(name, "") for name in label): float(sample["value"][1]) for sample in samples}


def alerts(prometheus: Prometheus, namespace: str) -> set[str]:
    samples = prometheus.ask("query", query=f'ALERTS{{namespace="{namespace}"}}')["result"]
    return {sample["metric"]["alertname"] for sample in samples}


def broken(prometheus: Prometheus) -> list[str]:
    groups = prometheus.ask("rules")["groups"]
    return [f"{rule['name']}: {rule.get('lastError')}" for group in groups for rule in group["rules"]
            if rule["health"] == "err"]  # fmt: skip


def up(prometheus: Prometheus) -> dict[str, str]:
    samples = prometheus.ask("query", query="up{pod!=''}")["result"]
    return {sample["metric"]["pod"]: sample["value"][1] for sample in samples}


def least_scrapes(prometheus: Prometheus) -> float:
    """Returns how often the target was scraped that was scraped least."""
    (sample,) = prometheus.ask("query", query="min(count_over_time(up[10m]))")["result"]
    return float(sample["value"][1])


def harm(prometheus: Prometheus, quiet: Prometheus) -> list[str]:
    """Returns what the hostile servers changed for others, or for rules, compared with a Prometheus without them."""
    return [
        *broken(prometheus),
        *(f"threshold {key}: {value}" for key, value in thresholds(prometheus).items() ^ thresholds(quiet).items()),
        *(f"alert {name}" for name in alerts(prometheus, HONEST) ^ alerts(quiet, HONEST)),
        *(f"{pod} is not scraped" for pod in ("good", "honest") if up(prometheus).get(pod) != "1"),
    ]


def test_hostile_servers_do_not_affect_other_tritonmodels(tmp_path: Path) -> None:
    with serving({"/metrics": operators_page}) as operators, hostile_pages(operators) as evil:
        (tmp_path / "quiet").mkdir()
        with scene(tmp_path / "quiet", {}, operators) as quiet, scene(tmp_path, evil, operators) as prometheus:
            for instance in (quiet, prometheus):
                eventually(lambda p=instance: "TritonModelQpsOverflow" in alerts(p, HONEST), 30)
            eventually(lambda: least_scrapes(prometheus) >= 20, 60)
            expected = thresholds(quiet)
            assert expected[HONEST, gen.NAME, "max-qps", "", "", ""] == 80
            assert expected[EVIL, gen.NAME, "max-qps", "", "", ""] == 90
            # A scrape every second may be late on a busy machine, also without hostile servers.
            eventually(lambda: not harm(prometheus, quiet), 60, lambda: harm(prometheus, quiet))
            names_of = prometheus.ask("label/__name__/values")
            assert "triton_operator_thresholds_invalid" not in names_of
            foreign = prometheus.ask("query", query='{pod!="",namespace!~"sound|vision"}')["result"]
            assert foreign == []
            refused = {pod for pod, value in up(prometheus).items() if value == "0"}
            assert refused >= {
                "many",
                "long-value",
                "long-name",
                "many-labels",
                "endless",
                "floods",
                "hangs",
                "redirects",
            }
            assert prometheus.rss_mib < 3 * quiet.rss_mib, "one second between scrapes: ten times as many as usual"
