"""A real Prometheus keeps the series of honest servers, and a limited number of those of hostile ones."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.api import eventually
from support.controlplane import ROOT
from support.prometheus_process import Page, Prometheus, running, scrape_config, serving
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor

pytestmark = pytest.mark.rules

REAL = (ROOT / "tests/rules/data/triton_24.10.txt").read_text()
PIPELINE = tuple((name, "1") for name in ("detection", "preprocess", "yolov5s", "postprocess"))
SAMPLES = [line for line in REAL.splitlines() if not line.startswith("#")]
KEPT = sum("summary" not in line or "_request_" in line for line in SAMPLES)
SCRAPES = 8
GPU = "GPU-8d3b1f00-0000-4000-8000-00000000000"
TWO_GPUS = {"server": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}


def invented(text: str, lines: int = 100) -> Page:
    """Returns the real page, and lines with new values of a label in each scrape. The counter is `{}` in the text."""
    numbers = itertools.count()
    return lambda: REAL + "".join(text.replace("{}", str(next(numbers))) + " 1\n" for _ in range(lines))


HOSTILE: dict[str, Page] = {
    "names": invented("nv_made_up_{}"),
    "models": invented('nv_inference_count{model="m{}",version="1"}'),
    "versions": invented('nv_inference_count{model="detection",version="1{}"}'),
    "reasons": invented('nv_inference_request_failure{model="detection",version="1",reason="{}"}'),
    "quantiles": invented('nv_inference_request_summary_us{model="detection",version="1",quantile="0.12345{}"}'),
    "gpus": invented('nv_gpu_utilization{gpu_uuid="GPU-{}"}', lines=10),
    "labels": invented('nv_inference_count{model="detection",version="1",turn="{}"}', lines=10),
    "targets": invented('nv_inference_count{model="detection",version="1",pod="{}",exported_job="{}"}', lines=10),
}


def two_gpus() -> str:
    """Returns the page of a server with two GPUs. Each has series of its own for each model, as in Triton."""
    labelled = [line.replace("{", f'{{gpu_uuid="{GPU}1",') for line in SAMPLES if "{" in line]
    power = 'nv_gpu_power_usage{gpu_uuid="%s"} 1\n'
    return "\n".join([*SAMPLES, *labelled, *(line.replace(f"{GPU}1", f"{GPU}2") for line in labelled), ""]) + "".join(
        power % f"{GPU}{n}" for n in (1, 2)
    )


@contextlib.contextmanager
def scraped(pages: dict[str, tuple[Page, dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yields the scrape configurations of TritonModels. Each has one server with this page, and this spec."""
    with contextlib.ExitStack() as stack:
        configs = []
        for name, (page, spec) in pages.items():
            model = gen.model(gen.put("metadata.name", name), **spec)
            target = stack.enter_context(serving({"/metrics": page}))
            configs += scrape_config(pod_monitor(model, Choices("operator:1", "Copy", series=PIPELINE)), {target: name})
        yield configs


def count(prometheus: Prometheus, pod: str) -> float:
    """Returns how many series Prometheus has ever had of this server."""
    return len(prometheus.ask("series", **{"match[]": f'{{pod="{pod}",__name__=~"nv_.*"}}'}))


def test_keeps_honest_series_and_no_invented_ones(tmp_path: Path) -> None:
    pages: dict[str, tuple[Page, dict[str, Any]]] = {
        "honest": (lambda: REAL, {}),
        "two-gpus": (two_gpus, TWO_GPUS),
        **{name: (page, {}) for name, page in HOSTILE.items()},
    }
    with scraped(pages) as configs, running(tmp_path, configs, []) as prometheus:
        done = 'min(count_over_time(up{pod!=""}[5m]))'
        eventually(lambda: (prometheus.value(done) or 0) >= SCRAPES, 60)
        found = prometheus.ask("query", query='min_over_time(up{pod!=""}[5m])')["result"]
        assert {one["metric"]["pod"] for one in found if one["value"][1] == "1"} == pages.keys()
        assert count(prometheus, "honest") == KEPT
        models = sum("{" in line and ("summary" not in line or "_request_" in line) for line in SAMPLES)
        assert count(prometheus, "two-gpus") == KEPT + 2 * models + 2
        # All invented GPUs are one series without the label.
        expected = {name: KEPT + (name == "gpus") for name in HOSTILE}
        assert {name: count(prometheus, name) for name in HOSTILE} == expected
