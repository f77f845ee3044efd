"""A real Prometheus keeps every series of honest servers, and none that a server isn't allowed to make."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.api import eventually
from support.controlplane import ROOT
from support.prometheus_process import Prometheus, running, scrape_config, serving
from triton_operator.render.facts import Facts
from triton_operator.render.pod_monitor import SUMMARIES, pod_monitor

pytestmark = pytest.mark.rules

SERVERS, MODELS = 100, 30
LINES = [
    line for line in (ROOT / "tests/rules/data/triton_24.10.txt").read_text().splitlines() if 'model="yolov5s"' in line
]
"""The series of one version of a model, with all summaries."""
OWN = [
    'vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="llm",engine="0"} 3',
    'rows_total{tenant="a"} 7',
]
PAGE = "\n".join([*(line.replace("yolov5s", f"net{n}") for n in range(MODELS) for line in LINES), *OWN, ""])
KEPT = MODELS * sum(not re.fullmatch(SUMMARIES, re.split("[{ ]", line)[0]) for line in LINES) + len(OWN)


@contextlib.contextmanager
def scraped(pages: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
    """Yields the scrape configurations of one TritonModel with a server for each page."""
    with contextlib.ExitStack() as stack:
        targets = {
            stack.enter_context(serving({"/metrics": lambda page=page: page})): pod  # type: ignore[misc]
            for pod, page in pages.items()
        }
        yield scrape_config(pod_monitor(gen.model(), Facts("operator:1", "Copy")), targets)


def samples(prometheus: Prometheus, query: str) -> dict[str, float]:
    """Returns the value of the query for each pod."""
    result = prometheus.ask("query", query=query)["result"]
    return {sample["metric"]["pod"]: float(sample["value"][1]) for sample in result}


def test_a_namespace_with_many_servers_and_models_keeps_all_metrics(tmp_path: Path) -> None:
    pages = {f"server-{number}": PAGE for number in range(SERVERS)}
    with scraped(pages) as configs, running(tmp_path, configs, [], every="20s") as prometheus:
        expected = dict.fromkeys(pages, float(KEPT))
        # On a busy machine a scrape may fail.
        query = 'count by (pod) (last_over_time({__name__=~"nv_.*|vllm:.*|rows_total"}[5m]))'
        eventually(lambda: samples(prometheus, query) == expected, 60, lambda: samples(prometheus, "up"))
        assert samples(prometheus, 'last_over_time(rows_total{tenant="a"}[5m])') == dict.fromkeys(pages, 7.0)
        assert samples(prometheus, 'last_over_time(vllm:time_to_first_token_seconds_bucket{engine="0"}[5m])')


@pytest.mark.parametrize(
    "line",
    [
        "triton_operator_threshold{kind=\"max-qps\"} 1",
        "tritonmodel:threshold:effective{kind=\"max-qps\"} 1",
        'ALERTS{alertname="TritonModelQpsOverflow",alertstate="firing"} 1',
        "up 0",
    ],
)  # fmt: skip
def test_a_server_makes_no_series_of_others(line: str, tmp_path: Path) -> None:
    with scraped({"liar": f"{line}\nrows_total 1\n"}) as configs, running(tmp_path, configs, []) as prometheus:
        eventually(lambda: samples(prometheus, "rows_total") == {"liar": 1.0}, 60)
        name = re.split("[{ ]", line)[0]
        if name == "up":
            # On a busy machine a scrape may fail.
            eventually(lambda: samples(prometheus, name) == {"liar": 1.0}, 60, lambda: samples(prometheus, name))
        else:
            assert samples(prometheus, name) == {}


def test_a_label_of_the_target_is_not_the_servers(tmp_path: Path) -> None:
    page = 'rows_total{namespace="other",tritonmodel="other",pod="other"} 1\n'
    with scraped({"liar": page}) as configs, running(tmp_path, configs, []) as prometheus:
        eventually(lambda: samples(prometheus, "rows_total"), 60)
        # On a busy machine the next scrape may fail.
        (sample,) = prometheus.ask("query", query="last_over_time(rows_total[5m])")["result"]
        labels = {name: sample["metric"][name] for name in ("namespace", "tritonmodel", "pod")}
        assert labels == {"namespace": gen.NAMESPACE, "tritonmodel": gen.NAME, "pod": "liar"}
