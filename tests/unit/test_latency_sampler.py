"""The container that measures latency: traces of Triton, how many it asks for, and its histograms."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from latency_sampler import series
from latency_sampler.histograms import Histograms
from latency_sampler.sampler import Sampler
from latency_sampler.sampling import BATCH, LOST_PER_SECOND, Pace, Setting, Weights, parse
from latency_sampler.traces import Times, read


def stamps(number: int, **at: int) -> list[dict[str, Any]]:
    return [{"id": number, "timestamps": [{"name": name, "ns": ns}]} for name, ns in at.items()]


KEYS = ["id", "timestamps", "name", "ns", "model_name"]


def item(number: int, model: str, **above: int) -> dict[str, Any]:
    return {"id": number, "model_name": model, "model_version": 1, **above}


# What Triton 2.51 wrote about an ensemble with two steps. Its REQUEST_END is 2 ms after its response was sent.
ENSEMBLE = json.dumps(
    [
        item(3, "small", parent_id=1),
        *stamps(3, REQUEST_START=500512180244, QUEUE_START=500512212685, COMPUTE_START=500512303686),
        *stamps(3, COMPUTE_INPUT_END=500512338862, COMPUTE_OUTPUT_START=500519675509, COMPUTE_END=500521952248),
        *stamps(3, REQUEST_END=500521979349),
        item(2, "small", parent_id=1),
        *stamps(2, REQUEST_START=500259828732, QUEUE_START=500259836987, COMPUTE_START=500259922548),
        *stamps(2, COMPUTE_INPUT_END=500260365478, COMPUTE_OUTPUT_START=500509196279, COMPUTE_END=500512251237),
        *stamps(2, REQUEST_END=500512265324),
        *stamps(1, HTTP_RECV_START=500259578583, HTTP_RECV_END=500259604351),
        item(1, "ens"),
        *stamps(1, REQUEST_START=500259762167, QUEUE_START=500259772136, INFER_RESPONSE_COMPLETE=500519806064),
        *stamps(1, HTTP_SEND_START=500519880834, HTTP_SEND_END=500519907354, REQUEST_END=500521997794),
    ]
)


def trace(model: str = "m", milliseconds: float = 10.0) -> str:
    end = round(milliseconds * 1e6)
    return json.dumps([item(1, model), *stamps(1, REQUEST_START=0, REQUEST_END=end)])


class TestTraces:
    def test_reads_an_ensemble_and_its_steps(self) -> None:
        found = {(t.model, t.request) for t in read(ENSEMBLE).times}
        assert found == {("ens", 0.260328771), ("small", 0.009799105), ("small", 0.252436592)}

    def test_reads_the_parts_of_a_step(self) -> None:
        first = next(t for t in read(ENSEMBLE).times if t.model == "small")
        assert (first.queue, first.compute) == (pytest.approx(0.000091001), pytest.approx(0.009648562))

    def test_an_ensemble_has_no_parts(self) -> None:
        ensemble = next(t for t in read(ENSEMBLE).times if t.model == "ens")
        assert (ensemble.queue, ensemble.compute) == (None, None)

    def test_a_grpc_stream_does_not_count_the_wait_for_the_request(self) -> None:
        at = {
            "GRPC_WAITREAD_START": 0,
            "GRPC_WAITREAD_END": 10**12,
            "REQUEST_START": 10**12 + 1,
            "GRPC_SEND_END": 10**12 + 10**9,
        }
        [found] = read(json.dumps([item(1, "m"), *stamps(1, **at)])).times
        assert found.request == 1.0

    @pytest.mark.parametrize(
        "at", [{"REQUEST_START": 1}, {"REQUEST_END": 1}, {"REQUEST_START": 2, "REQUEST_END": 1}, {}]
    )
    def test_leaves_out_what_has_no_time(self, at: dict[str, int]) -> None:
        assert read(json.dumps([item(1, "m"), *stamps(1, **at)])).times == []

    @pytest.mark.parametrize("text", ["", "[{", "{}", "[" * 100_000, "null"])
    def test_refuses_what_is_not_whole(self, text: str) -> None:
        with pytest.raises(ValueError, match=r".+"):
            read(text)

    @given(st.recursive(st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["id", "timestamps"]),
                        lambda inner: st.lists(inner, max_size=3)
                        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
                        max_leaves=12))  # fmt: skip
    def test_takes_any_json(self, value: Any) -> None:
        with contextlib.suppress(ValueError):
            read(json.dumps([value, item(1, "m")]))

    # What follows the ID that a client has chosen: ","parent_id":…, or the end of the item.
    @pytest.mark.parametrize("identifier", [
        'x"},{"id":1,"timestamps":[{"name":"HTTP_SEND_END","ns":1',
        'x"},{"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":9}]},{"id":7,"y":"',
        'x"},{"id":1,"timestamps":[{"name":"HTTP_SEND_END","ns":9}]},{"id":7,"y":"',
        'x"},{"id":9,"model_name":"fake","model_version":1,"y":"',
        'x"},{"id":1,"model_name":"fake","model_version":1,"y":"',
        'x"},{"id":2,"parent_id":1,"model_name":"a","model_version":"1","y":"',
        'x"},{"id":7,"timestamps":[{"name":"A","ns":%s}],"y":"' % ("9" * 400),
        "a\"b",
    ])  # fmt: skip
    def test_a_request_id_changes_no_times(self, identifier: str) -> None:
        whole = [*stamps(1, HTTP_RECV_START=10), {**item(1, "m"), "request_id": "ID"}, *stamps(1, HTTP_SEND_END=20)]
        with pytest.raises(ValueError, match=r".+"):
            read(json.dumps(whole).replace("ID", identifier))

    def test_a_stream_ends_with_its_last_response(self) -> None:
        at = [
            *stamps(1, GRPC_WAITREAD_END=0),
            item(1, "m"),
            *stamps(1, GRPC_SEND_END=5),
            *stamps(1, GRPC_SEND_END=10**9),
        ]
        assert read(json.dumps(at)).times[0].request == 1.0


ON = Setting(on=True, rate=1, left=BATCH)


def looked(*looks: tuple[Setting, int]) -> tuple[Pace, Setting | None]:
    """Returns the pace after these looks, each with the setting that was found and the files since the last one."""
    pace, change = Pace(Random(1)), None
    for found, files in looks:
        if change := pace.look(found, 1.0, files):
            pace.changed(change)
    return pace, change


def test_starts_with_every_request() -> None:
    assert looked((Setting(on=False, rate=1000, left=-1), 0))[1] == ON


def test_takes_over_the_rate_of_a_sampler_before_it() -> None:
    assert looked((Setting(on=True, rate=70, left=3), 0))[1] == Setting(on=True, rate=70, left=BATCH)


@pytest.mark.parametrize(
    "found",
    [Setting(on=False, rate=1, left=BATCH), Setting(on=True, rate=1, left=-1), Setting(on=True, rate=5, left=BATCH),
     Setting(on=True, rate=1, left=BATCH + 1)],
)  # fmt: skip
def test_a_setting_that_it_did_not_make_is_replaced(found: Setting) -> None:
    """The server has restarted, or a client has changed the setting."""
    assert looked((Setting(), 0), (ON, 0), (found, 0))[1] == ON


def test_an_idle_server_is_left_alone() -> None:
    assert looked((Setting(), 0), *[(ON, 0)] * 500)[1] is None


def test_gives_a_new_number_before_the_old_one_ends() -> None:
    few = [(replace(ON, left=BATCH - k), 1) for k in range(1, BATCH // 2 + 2)]
    assert looked((Setting(), 0), *few[:-1])[1] is None
    assert looked((Setting(), 0), *few)[1] == ON


def test_a_load_that_uses_up_everything_is_higher_than_what_was_used() -> None:
    change = looked((Setting(), 0), (replace(ON, left=0), BATCH))[1]
    assert change
    assert change.rate > BATCH / 10 * 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"trace_mode": "opentelemetry"}, "opentelemetry"),
        ({"trace_mode": "triton", "trace_file": ""}, "no file"),
        ({"trace_file": "/t", "trace_rate": "x"}, "trace_rate"),
        (["a"], "JSON object"),
    ],
)
def test_says_why_there_are_no_traces(answer: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(answer)


class Simulated:
    """Triton's sampling, with a request as (seconds since the start, how long it takes)."""

    def __init__(self) -> None:
        self.pace, self.weights = Pace(Random(1)), Weights()
        self.setting = Setting(rate=1000, left=-1)
        self.counter = 0
        self.traced: list[tuple[float, float]] = []
        self.found: list[tuple[float, float, int]] = []

    def run(self, requests: list[tuple[float, float]], seconds: int) -> None:
        """Looks about once per second. A trace is written when its request ends. A duration below 0: it is refused."""
        waiting, jitter = deque(sorted(requests)), Random(2)
        before = 0.0
        for second in range(seconds + 1):
            now = second + jitter.random() / 2
            while waiting and waiting[0][0] < now:
                self._request(waiting.popleft())
            if change := self.pace.look(self.setting, max(now - before, 0.1), self._written(now)):
                self.setting, self.counter = change, 0
                self.pace.changed(change)
                self.weights.change(round(now * 1e9), change.rate)
            before = now

    def _request(self, request: tuple[float, float]) -> None:
        if self.setting.on and self.setting.left > 0:
            self.counter += 1
            if self.counter % self.setting.rate == 0:
                self.setting = replace(self.setting, left=self.setting.left - 1)
                self.traced.append(request)

    def _written(self, now: float) -> int:
        done = [one for one in self.traced if one[0] + one[1] <= now and one[1] >= 0]
        self.traced = [one for one in self.traced if one[0] + one[1] > now and one[1] >= 0]
        self.found += [(at, took, self.weights.at(round(at * 1e9))) for at, took in done]
        return len(done)

    def weight(self, since: float = 0, above: float = 0) -> int:
        return sum(weight for at, took, weight in self.found if at >= since and took > above)


def steady(rate: float, start: float, end: float, took: float = 0.02) -> list[tuple[float, float]]:
    return [(start + k / rate, took) for k in range(int(rate * (end - start)))]


@pytest.mark.parametrize("rate", [0.5, 3, 40, 2000])
def test_a_steady_load_is_weighed_as_it_is(rate: float) -> None:
    triton = Simulated()
    triton.run(steady(rate, 0, 200), 201)
    assert triton.weight(since=20) == pytest.approx(180 * rate, rel=0.05, abs=1)


@pytest.mark.parametrize(("rate", "on", "every"), [(2000, 5, 30), (2000, 10, 60), (500, 10, 30), (200, 10, 20)])
def test_bursts_are_weighed_as_they_are_after_the_first(rate: float, on: int, every: int) -> None:
    """And the second half of each, which is slow, as well as the first."""
    requests = [
        request
        for start in range(0, 300, every)
        for request in (*steady(rate, start, start + on / 2), *steady(rate, start + on / 2, start + on, took=1.5))
    ]
    triton = Simulated()
    triton.run(requests, 320)
    real = len([at for at, _ in requests if at >= every])
    assert triton.weight(since=every) == pytest.approx(real, rel=0.1)
    assert triton.weight(since=every, above=1) == pytest.approx(real / 2, rel=0.15)


def test_slow_requests_have_the_weight_of_their_beginning() -> None:
    """5 % take six seconds, while the rate changes from 1 to about 200."""
    random = Random(3)
    requests = [(at, 6.0 if random.random() < 0.05 else 0.02) for at, _ in steady(2000, 0, 60)]
    triton = Simulated()
    triton.run(requests, 70)
    assert triton.weight(above=1) / triton.weight() == pytest.approx(0.05, rel=0.4)


@pytest.mark.parametrize("kinds", [2, 3, 4, 10])
@pytest.mark.parametrize("rate", [20, 40, 300])
def test_requests_that_alternate_are_all_seen(kinds: int, rate: int) -> None:
    requests = [(at, 1.0 if k % kinds == 0 else 0.02) for k, (at, _) in enumerate(steady(rate, 0, 300))]
    triton = Simulated()
    triton.run(requests, 310)
    assert triton.weight(above=0.5) / triton.weight() == pytest.approx(1 / kinds, rel=0.4)


def test_a_few_refused_requests_change_nothing() -> None:
    requests = [(at, -1.0 if k % 150 == 7 else 0.02) for k, (at, _) in enumerate(steady(200, 0, 300))]
    triton = Simulated()
    triton.run(requests, 310)
    assert len(triton.found) > 5 * 300


@pytest.mark.parametrize("rate", [50, 2000])
def test_triton_loses_few_traces_of_requests_that_it_refuses(rate: float) -> None:
    triton = Simulated()
    triton.run(steady(rate, 0, 300, took=-1.0), 301)
    assert rate / triton.setting.rate <= 2 * LOST_PER_SECOND


def test_long_requests_are_not_taken_for_lost_ones() -> None:
    triton = Simulated()
    triton.run(steady(100, 0, 600, took=20.0), 620)
    assert len([at for at, _, _ in triton.found if at > 400]) > 5 * 200


def page(histograms: Histograms) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(histograms)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


class TestHistograms:
    def test_a_request_counts_for_those_that_it_stands_for(self) -> None:
        histograms = Histograms()
        histograms.add([Times("m", "1", 0.2, 0.01, None)], 40)
        found = page(histograms)
        assert found[f"{series.REQUEST}_count", "m", "1"] == 40
        assert found[f"{series.REQUEST}_sum", "m", "1"] == pytest.approx(8.0)
        assert found[f"{series.SAMPLES}_total", "m", "1"] == 1
        assert (found[f"{series.QUEUE}_count", "m", "1"], found[f"{series.COMPUTE}_count", "m", "1"]) == (40, 0)

    def test_a_value_at_a_bound_is_in_its_bucket(self) -> None:
        histograms = Histograms()
        histograms.add([Times("m", "1", 0.2, None, None)], 1)
        found = page(histograms)
        assert found[f"{series.REQUEST}_bucket", "0.16", "m", "1"] == 0
        assert found[f"{series.REQUEST}_bucket", "0.2", "m", "1"] == 1
        assert found[f"{series.REQUEST}_bucket", "+Inf", "m", "1"] == 1

    def test_a_value_above_all_bounds_counts(self) -> None:
        histograms = Histograms()
        histograms.add([Times("m", "1", 1000.0, None, None)], 1)
        found = page(histograms)
        assert found[f"{series.REQUEST}_bucket", "100.0", "m", "1"] == 0
        assert found[f"{series.REQUEST}_bucket", "+Inf", "m", "1"] == 1

    def test_bounds_stay(self) -> None:
        """Servers whose pod template is kept have samplers of earlier versions, with which the rules must agree."""
        text = ",".join(map(series.label, (*series.REQUEST_BOUNDS, *series.PART_BOUNDS)))
        assert (len(series.REQUEST_BOUNDS), len(series.PART_BOUNDS), crc32(text.encode())) == (61, 19, 1843807159)

    def test_bounds_grow_by_less_than_a_third(self) -> None:
        bounds = series.REQUEST_BOUNDS
        assert all(1.2 < b / a < 1.3 for a, b in itertools.pairwise(bounds))
        assert {0.001, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 10.0} <= set(bounds)

    def test_a_server_that_names_more_and_more_models_does_not_fill_prometheus(self) -> None:
        histograms = Histograms()
        histograms.add([Times(f"m{k}", "1", 0.2, None, None) for k in range(series.MAX_SERIES + 50)], 1)
        found = page(histograms)
        assert sum(1 for key in found if key[0] == f"{series.SAMPLES}_total") == series.MAX_SERIES
        assert found[(f"{series.UNREAD}_total",)] == 50
        of_one = [key for key in found if key[-2:] == ("m0", "1")]
        assert len(of_one) == series.SAMPLES_OF_A_VERSION


class Triton:
    """The trace API and the index of a server, which keeps its last setting as Triton does."""

    def __init__(self) -> None:
        self.setting = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "trace_file": "/t/trace"}
        self.posts: list[dict[str, Any]] = []
        self.metadata: Any = {"name": "triton", "version": "2.57.0"}
        self.codes = {"/v2": 200, "/v2/trace/setting": 200, "/v2/repository/index": 200}
        self.indexes = 0


@pytest.fixture
def triton() -> Iterator[tuple[Triton, str]]:
    state = Triton()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(state.codes[self.path])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(state.metadata if self.path == "/v2" else state.setting)

        def do_POST(self) -> None:
            change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("index"):
                state.indexes += 1
                return self._answer([{"name": "m", "version": "1", "state": "READY"}, {"name": "step"}])
            state.posts.append(change)
            state.setting |= change
            return self._answer(state.setting)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield state, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


class Clock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10**9
        return self.now


@pytest.fixture
def sampler(tmp_path: Path, triton: tuple[Triton, str]) -> Sampler:
    return Sampler(triton[1], tmp_path, clock=Clock())


COUNT = f"{series.REQUEST}_count", "m", "1"
UNREAD = (f"{series.UNREAD}_total",)


def test_reads_and_removes_files(sampler: Sampler, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"trace.{number}").write_text(trace())
    sampler.step()
    assert page(sampler.histograms)[COUNT] == 3
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_triton_still_writes_waits(sampler: Sampler, tmp_path: Path) -> None:
    file = tmp_path / "trace.0"
    file.write_text(trace()[:-1])
    sampler.step()
    assert file.exists()
    file.write_text(trace())
    sampler.step()
    assert page(sampler.histograms)[COUNT] == 1


def test_a_broken_file_is_removed_and_counted(sampler: Sampler, tmp_path: Path) -> None:
    file = tmp_path / "trace.0"
    file.write_text("[{")
    os.utime(file, (1, 1))
    sampler.step()
    assert not file.exists()
    assert page(sampler.histograms)[UNREAD] == 1


def test_a_model_that_triton_does_not_have_is_not_measured(
    sampler: Sampler, tmp_path: Path, triton: tuple[Triton, str]
) -> None:
    for number, model in enumerate(["fake", "m", "\\ud800"]):
        (tmp_path / f"trace.{number}").write_text(trace(model))
    sampler.step()
    found = page(sampler.histograms)
    assert {key[1] for key in found if key[0] == f"{series.SAMPLES}_total"} == {"m"}
    assert found[UNREAD] == 2


def test_without_the_index_it_measures_what_prometheus_can_read(
    sampler: Sampler, tmp_path: Path, triton: tuple[Triton, str]
) -> None:
    triton[0].codes["/v2/repository/index"] = 403
    for number, model in enumerate(["other", "\\ud800"]):
        (tmp_path / f"trace.{number}").write_text(trace(model).replace("\\\\", "\\"))
    sampler.step()
    found = page(sampler.histograms)
    assert {key[1] for key in found if key[0] == f"{series.SAMPLES}_total"} == {"other"}
    assert found[(series.WORKS,)] == 1


def test_asks_for_traces(sampler: Sampler, triton: tuple[Triton, str]) -> None:
    for _ in range(3):
        sampler.step()
    wanted = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": str(BATCH), "log_frequency": "1"}
    assert triton[0].posts == [wanted]
    assert page(sampler.histograms)[(series.WORKS,)] == 1


def test_a_request_counts_as_many_as_when_it_began(
    sampler: Sampler, triton: tuple[Triton, str], tmp_path: Path
) -> None:
    sampler.step()
    triton[0].setting["trace_count"] = str(BATCH // 2)
    sampler.step()
    rate = int(triton[0].posts[-1]["trace_rate"])
    assert rate > 10
    early = json.dumps([item(1, "m"), *stamps(1, REQUEST_START=1, REQUEST_END=100 * 10**9)])
    late = json.dumps([item(1, "m"), *stamps(1, REQUEST_START=99 * 10**9, REQUEST_END=100 * 10**9)])
    (tmp_path / "trace.0").write_text(early)
    (tmp_path / "trace.1").write_text(late)
    sampler.step()
    assert page(sampler.histograms)[COUNT] == rate + 1


@pytest.mark.parametrize(("code", "words"), [(403, "remove both from --http-restricted-api"), (503, "answers 503")])
@pytest.mark.parametrize("path", ["/v2", "/v2/trace/setting"])
def test_says_that_it_can_not(
    sampler: Sampler, triton: tuple[Triton, str], path: str, code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    triton[0].codes[path] = code
    for _ in range(3):
        sampler.step()
    assert page(sampler.histograms)[(series.WORKS,)] == 0
    assert [words in record.getMessage() for record in caplog.records] == [True]
    triton[0].codes[path] = 200
    sampler.step()
    assert page(sampler.histograms)[(series.WORKS,)] == 1
    assert caplog.records[-1].getMessage() == "latency is measured"


@pytest.mark.parametrize(
    ("metadata", "traces"),
    [
        ({"version": "2.51.0"}, False), ({"version": "2.56.99"}, False), ({"version": "1.99"}, False),
        ({"version": "dev"}, False), ({"version": "\x1b2.60"}, False), ({}, False), ([], False),
        ({"version": "2.57.0"}, True), ({"version": "2.57.0dev"}, True), ({"version": "2.100"}, True),
        ({"version": "3.0.0"}, True), ({"version": "2.7"}, False),
    ],
)  # fmt: skip
def test_traces_only_servers_that_it_can_not_end(
    sampler: Sampler, triton: tuple[Triton, str], metadata: Any, traces: bool, caplog: pytest.LogCaptureFixture
) -> None:
    triton[0].metadata = metadata
    for _ in range(2):
        sampler.step()
    assert bool(triton[0].posts) is traces
    assert page(sampler.histograms)[(series.WORKS,)] == traces
    said = [record.getMessage() for record in caplog.records]
    assert ["set spec.server.image to a newer release" in text for text in said] == [True] * (not traces)
    assert all(text.isprintable() for text in said)


def test_files_that_it_can_not_read_are_no_measurement(
    sampler: Sampler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "trace.0").mkdir()
    for _ in range(3):
        sampler.step()
    assert page(sampler.histograms)[(series.WORKS,)] == 0
    assert len(caplog.records) == 1


def test_a_server_that_is_not_there_yet(tmp_path: Path) -> None:
    sampler = Sampler("http://127.0.0.1:9", tmp_path)
    sampler.step()
    assert page(sampler.histograms)[(series.WORKS,)] == 0


def test_a_proxy_in_the_environment_is_not_used(
    sampler: Sampler, triton: tuple[Triton, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    sampler.step()
    assert triton[0].posts
