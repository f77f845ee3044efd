"""The assumptions of the rules about Triton's counters: the table in docs/metrics.md."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Mapping

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from model_images.support import Server
from support.api import steady
from triton_operator.api.series import FAILURES_PER_REQUEST
from triton_operator.api.servers import Counters, Subject
from triton_operator.probe import fetch
from triton_operator.probe.counters import counters

pytestmark = pytest.mark.server

Series = tuple[str, str, str]
"""Name, model, reason."""


def scrape(server: Server) -> dict[Series, float]:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    out = {}
    for name, labels, value in re.findall(r"^(nv_inference_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        values = dict(re.findall(r'(\w+)="(.*?)"', labels))
        out[name, values["model"], values.get("reason", "")] = float(value)
    return out


def growth(server: Server, image: bytes, times: int, dims: tuple[int, int] = (1, 1)) -> dict[Series, float]:
    """Sends `times` requests that the server refuses. Returns the increase of the request counters."""
    tensor = tritonclient.http.InferInput("IMAGE", list(dims), "BYTES")
    tensor.set_data_from_numpy(np.full(dims, image, np.object_))
    before = scrape(server)
    with tritonclient.http.InferenceServerClient(server.http) as client:
        for _ in range(times):
            with pytest.raises(InferenceServerException):
                client.infer("detection", [tensor])
    after = steady(lambda: scrape(server), 0.5, 60, "Triton increments the counters after the response")
    return {s: after[s] - before[s] for s in after if after[s] != before[s] and "_request_" in s[0]}


def test_triton_exposes_the_series_of_the_rules_for_every_model_and_reason(server: Server) -> None:
    samples = scrape(server)
    for model in ("detection", "preprocess", "yolov5s", "postprocess"):
        for name in ("request_success", "queue_duration_us", "pending_request_count"):
            assert (f"nv_inference_{name}", model, "") in samples
        reasons = {r for name, m, r in samples if (name, m) == ("nv_inference_request_failure", model)}
        assert reasons == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}


def test_the_prober_reads_the_counters_that_the_server_shows(server: Server) -> None:
    async def read() -> Mapping[str, Counters]:
        client = fetch.HttpClient()
        return (await counters(client, server.metrics, Subject("detection", frozenset({"preprocess"})))).models

    grown = growth(server, b"no image", 3)
    assert grown
    before = scrape(server)
    models = asyncio.run(read())
    for model in ("detection", "preprocess"):
        failures = sum(v for (n, m, _), v in before.items() if (n, m) == ("nv_inference_request_failure", model))
        assert models[model].success == before["nv_inference_request_success", model, ""]
        assert models[model].failure == failures
    assert models["detection"].failure > 0


def test_an_ensemble_counts_a_failure_twice_and_its_step_counts_a_success(server: Server) -> None:
    grown = {(n, m): v for (n, m, _), v in growth(server, b"no image", 5).items() if not n.endswith("_duration_us")}
    assert grown == {
        ("nv_inference_request_failure", "detection"): FAILURES_PER_REQUEST * 5,
        ("nv_inference_request_success", "preprocess"): 5,
    }


def test_triton_does_not_count_a_request_with_a_wrong_shape(server: Server) -> None:
    assert growth(server, b"no image", 5, (1, 2)) == {}
