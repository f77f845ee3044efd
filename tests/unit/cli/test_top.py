"""`kubectl triton top`: rows, sections, the queries, and the keys of the live view."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from textual.widgets import DataTable, Input, Static

from kubectl_triton import cluster, samples
from kubectl_triton.main import main
from kubectl_triton.samples import Alert, Samples
from kubectl_triton.top import detail, fleet
from kubectl_triton.top.source import Source
from kubectl_triton.top.view import Model, Models, Top
from support import clock, gen
from support import fleet as objects
from support.api import MIN_WAIT_SECONDS
from support.fake_prometheus import FakePrometheus
from triton_operator.pods import Pod

ESCAPE = "\x1b]0;owned\x07\x9b31m"
MARKUP = "[bold]x[/bold] [@click=app.quit]y[/] [/nothing]"
KEY = f"{gen.NAMESPACE}/{gen.NAME}"
NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
MODEL = gen.raw(objects.status())


def row(model: Any = MODEL, scaler: Any = None, values: Samples | None = None) -> dict[str, fleet.Cell]:
    """Returns the cells of one TritonModel by the title of their column."""
    (only,) = fleet.rows([model], [scaler] if scaler else [], values or Samples())
    return dict(zip([c.title for c in fleet.COLUMNS], fleet.cells(only), strict=True))


def test_a_row_without_prometheus_has_what_the_api_server_knows() -> None:
    cells = {title: cell.text for title, cell in row().items()}
    assert cells == {
        "NAME": KEY, "STATE": "Ready", "DEMAND/LIMIT": "- / 80", "LOAD/SERVERS": "- / 2", "P50": "-", "P99": "-",
        "QUEUE": "-", "FAILED": "-", "READY": "2/2", "AUTOSCALER": "-", "ALERTS": "-",
    }  # fmt: skip


def test_a_row_with_prometheus() -> None:
    values = Samples({KEY: 96.04}, {KEY: 2.4}, {KEY: 0.0123}, {KEY: 1.5}, {KEY: 0.25}, {KEY: 0.021},
                    {KEY: (Alert("TritonModelQpsOverflow", "critical"), Alert("B", "warning"))})  # fmt: skip
    cells = row(values=values)
    assert cells["DEMAND/LIMIT"] == fleet.Cell("96 / 80", "bad")
    assert cells["LOAD/SERVERS"] == fleet.Cell("2.4 / 2", "bad")
    assert (cells["P50"].text, cells["P99"].text, cells["QUEUE"].text) == ("12.3 ms", "1.5 s", "250 ms")
    assert cells["FAILED"] == fleet.Cell("2.1 %", "bad")
    assert cells["ALERTS"] == fleet.Cell("QpsOverflow +1", "bad")
    near = row(values=replace(values, demand={KEY: 75.0}, alerts={}))
    assert near["DEMAND/LIMIT"].tone == "warn"
    assert near["ALERTS"].text == "0"


def test_a_row_of_a_new_or_unreadable_tritonmodel() -> None:
    for status in ({}, {"conditions": "x"}, {"replicas": {}}):
        cells = row(gen.raw(gen.put("status", status)))
        assert (cells["STATE"].text, cells["READY"].text) == ("Unknown", "0/0")


def test_a_failed_tritonmodel_shows_its_reason() -> None:
    cells = row(gen.raw(objects.status("False", "ModelLoadFailed", readyReplicas=0)))
    assert cells["STATE"] == fleet.Cell("ModelLoadFailed", "bad")
    assert cells["READY"] == fleet.Cell("0/2", "bad")


def test_a_server_that_answers_nothing_is_marked_although_ready_is_true() -> None:
    assert row(gen.raw(objects.status("True", "ServerFails")))["STATE"] == fleet.Cell("ServerFails", "warn")


DIRECT = {"desired": 5, "load": "3.1", "reason": "ScaledUp", "message": "3.1 servers' load", "time": objects.SINCE}


@pytest.mark.parametrize(
    ("changes", "scaler", "text", "ready"),
    [
        ([objects.condition("AutoscalerActive", "True", "ValidMetricFound")], (2, 2), "steady", "2/2"),
        ([objects.condition("AutoscalerActive", "True", "ValidMetricFound")], (2, 4), "2 → 4", "2/4"),
        ([objects.condition("AutoscalerActive", "True", "ValidMetricFound")], None, "steady", "2/2"),
        ([objects.condition("AutoscalerActive", "False", "FailedGetObjectMetric")], (2, 2), "FailedGetObjectMetric",
         "2/2"),
        ([objects.condition("AutoscalerActive", "True", "Active"), gen.put("status.autoscaling", DIRECT)], (2, 2),
         "ScaledUp, at least 5", "2/5"),
        ([gen.put("spec.replicas", 3)], None, "-", "2/3"),
    ],
)  # fmt: skip
def test_what_the_autoscaler_does(
    changes: list[gen.Modifier], scaler: tuple[int, int] | None, text: str, ready: str
) -> None:
    hpa = objects.autoscaler(gen.NAME, *scaler) if scaler else None
    cells = row(gen.modified(MODEL, *changes), hpa)
    assert (cells["AUTOSCALER"].text, cells["READY"].text) == (text, ready)


def test_the_load_comes_from_the_autoscaler_without_prometheus() -> None:
    assert row(scaler=objects.autoscaler(gen.NAME, 2, 2, "625m"))["LOAD/SERVERS"].text == "1.25 / 2"
    assert row(scaler=objects.autoscaler(gen.NAME, 2, 2, "much"))["LOAD/SERVERS"].text == "- / 2"
    values = Samples(load={KEY: 1.5})
    assert row(scaler=objects.autoscaler(gen.NAME, 2, 2, "625m"), values=values)["LOAD/SERVERS"].text == "1.5 / 2"


def test_rows_are_sorted_by_any_column_and_filtered() -> None:
    models = [gen.raw(objects.status(), name=n) for n in ("b", "a", "c")]
    values = Samples(demand={f"{gen.NAMESPACE}/c": 90.0, f"{gen.NAMESPACE}/a": 10.0})
    rows = fleet.rows(models, [], values)
    order = lambda sort: [r.key[-1] for r in fleet.arranged(rows, sort)]  # noqa: E731
    assert order(0) == ["a", "b", "c"]
    assert order(2) == ["c", "a", "b"]
    for sort in range(len(fleet.COLUMNS)):
        assert sorted(order(sort)) == ["a", "b", "c"]
    assert [r.key for r in fleet.arranged(rows, 0, "VISION/B")] == [f"{gen.NAMESPACE}/b"]


def test_long_and_hostile_words_of_tenants_are_cut_to_one_printable_line() -> None:
    long = ESCAPE + "x" * 900
    model = gen.modified(MODEL, objects.condition("Ready", "False", long, long),
                         gen.put("status.models.0.reason", long),
                         gen.put("status.thresholds.0.source", long))  # fmt: skip
    subject = detail.Reading(
        model,
        [Pod(gen.pod(gen.waiting("fetch", "ErrImagePull", long)))],
        [objects.event(long, long)],
        samples=Samples(alerts={KEY: (Alert(long, long),)}),
    )
    cells = list(row(model, values=subject.samples).values())
    cells += [cell for s in detail.sections(subject, NOW) for line in s.rows for cell in line]
    assert all(cell.text.isprintable() and len(cell.text) <= 500 for cell in cells)
    assert sum("owned" in cell.text for cell in cells) >= 8


@pytest.mark.parametrize(
    ("value", "share", "duration"),
    [(1.0, "100 %", "1 s"), (0.12345, "12.3 %", "123 ms"), (0.0002, "0.02 %", "0.2 ms"), (0.0, "0 %", "0 ms"),
     (0.99961, "100 %", "1 s"), (1234.0, "123400 %", "1234 s"), (None, "-", "-")],
)  # fmt: skip
def test_a_number_has_no_exponent(value: float | None, share: str, duration: str) -> None:
    assert (fleet.share(value), fleet.duration(value)) == (share, duration)


def test_the_sections_have_the_numbers_and_the_command_that_explains_an_alert() -> None:
    samples = Samples(demand={KEY: 96.2}, alerts={KEY: (Alert("TritonModelQpsOverflow", "critical"),)})
    sections = {s.title: s for s in detail.sections(detail.Reading(MODEL, samples=samples), NOW)}
    now = dict(zip(sections["Now"].head, sections["Now"].rows[0], strict=True))
    assert (now["DEMAND/LIMIT"].text, now["DEMAND/LIMIT"].tone) == ("96.2 / 80", "bad")
    command = f"kubectl triton explain-alert {gen.NAME} QpsOverflow -n {gen.NAMESPACE} --prometheus URL"
    assert sections["Alerts"].rows[0][-1].text == command


def test_sections_of_one_tritonmodel() -> None:
    events = [objects.event("Old", "o", 1), objects.event("New", "n", 2, "Warning")]
    sections = {s.title: s for s in detail.sections(detail.Reading(MODEL, [Pod(gen.pod())], events), NOW)}
    assert list(sections) == ["Now", "Conditions", "Thresholds", "Servers", "Models", "Events"]
    assert [c.text for c in sections["Thresholds"].rows[0]] == ["max-qps", "80", "5m", "tritonoperator.io/max-qps"]
    assert [line[2].text for line in sections["Events"].rows] == ["New", "Old"]
    assert sections["Servers"].rows[0][-1].text == "serving"
    scaled = gen.modified(MODEL, gen.put("spec.autoscaling", {"max": 4}), gen.put("status.autoscaling", DIRECT))
    (scaling,) = [s for s in detail.sections(detail.Reading(scaled), NOW) if s.title == "Scaling"]
    assert scaling.rows[1][0].text.endswith("not below 5: 3.1 servers' load")
    many = detail.sections(detail.Reading(MODEL, [Pod(gen.pod(name=f"p{n}")) for n in range(60)]), NOW)
    assert next(s for s in many if s.title == "Servers").left_out == 10


@pytest.mark.parametrize(
    ("time", "text"),
    [("2026-01-01T00:04:30.250Z", "30s"), ("2025-12-31T00:05:00Z", "24h"), ("2025-12-01T00:05:00Z", "31d"),
     ("2026-01-01T00:06:00Z", "0s"), (None, "-"), ("soon", "-")],
)  # fmt: skip
def test_age(time: str | None, text: str) -> None:
    assert detail.age(time, NOW) == text


# Prometheus


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.close()


RESULTS: dict[str, list[Any]] = {
    "demand": [objects.series("12.5"), objects.series("7", name="other")],
    "load": [objects.series("0.5")], "p50": [objects.series("NaN")], "p99": [objects.series("0.2")],
    "queue": [objects.series("+Inf")], "errors": [],
    "alerts": [objects.series("1", alertname="Z", severity="critical"), objects.series("1", alertname="A")],
}  # fmt: skip


def test_samples_are_read_with_one_query_for_each_value(prometheus: FakePrometheus) -> None:
    prometheus.series = {q: RESULTS[name] for name, q in samples.queries("vision").items()}
    values = samples.read(prometheus.url + "/", "vision")
    assert values.error == ""
    assert values.demand == {KEY: 12.5, f"{gen.NAMESPACE}/other": 7.0}
    assert (values.p50, values.p99, values.queue) == ({}, {KEY: 0.2}, {})
    assert values.alerts == {KEY: (Alert("Z", "critical"), Alert("A", ""))}


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"data": {"result": {}}}', '{"data": {"result": [1]}}', "<html>",
                                  '{"data": {"result": [{"metric": {}, "value": [0, "1"]}]}}'])  # fmt: skip
def test_another_server_is_no_prometheus(prometheus: FakePrometheus, body: str) -> None:
    prometheus.body = body or " "
    assert samples.read(prometheus.url, None).error == f"the server at {prometheus.url} is not a Prometheus"


def test_an_error_of_prometheus_hides_the_password(prometheus: FakePrometheus) -> None:
    prometheus.status = 500
    url = prometheus.url.replace("://", "://me:secret@")
    error = samples.read(url, None).error
    assert error.startswith("no answer from Prometheus at http://127.0.0.1")
    assert "secret" not in error
    assert samples.read("http://[" + ESCAPE, None).error.isprintable()


# The command and the live view


class Connection:
    """A cluster with these TritonModels. `refused`: what the user may not list."""

    def __init__(self, *models: Any, refused: tuple[str, ...] = (), namespace: str = gen.NAMESPACE) -> None:
        self._models, self.refused, self.namespace = models, refused, namespace

    def _allowed(self, what: str) -> None:
        if what in self.refused:
            raise cluster.UnreachableError("forbidden", code=403)

    def within(self, namespace: str) -> Connection:
        return self

    def model(self, name: str) -> Any:
        return next(m for m in self._models if m["metadata"]["name"] == name)

    def models(self, namespace: str | None, most: int) -> Any:
        self._allowed("models")
        return list(self._models)

    def autoscalers(self, namespace: str | None, most: int) -> Any:
        self._allowed("autoscalers")
        return []

    def autoscaler(self, model: Any) -> Any:
        return None

    def pods(self, model: Any, most: int) -> Any:
        self._allowed("pods")
        return [Pod(gen.pod())]

    def events(self, model: Any, most: int) -> Any:
        self._allowed("events")
        return [objects.event("Complete", MARKUP)]


def run(monkeypatch: pytest.MonkeyPatch, connection: Connection, *arguments: str) -> Any:
    monkeypatch.setattr(cluster, "connect", lambda *_: connection)
    return CliRunner().invoke(main, ["top", *arguments])


def test_once_prints_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Connection(MODEL, gen.raw(name="other"), refused=("autoscalers",)), "--once")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == [c.title for c in fleet.COLUMNS]
    assert [line.split()[0] for line in lines[1:3]] == [KEY, f"{gen.NAMESPACE}/other"]
    assert lines[3] == "without autoscalers: you have no permission to list them"


def test_once_prints_one_tritonmodel(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Connection(MODEL, refused=("pods",)), gen.NAME, "--once")
    assert result.exit_code == 0, result.output
    assert "without pods: you have no permission to list them" in result.output
    assert "Thresholds" in result.output
    assert "Servers" not in result.output


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "the live view needs a terminal"), (["x", "-A"], "exclude each other"), (["--once", "--interval=1"], "2<=x"),
])  # fmt: skip
def test_wrong_usage(monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str) -> None:
    result = run(monkeypatch, Connection(), *arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_top_fails_if_tritonmodels_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Connection(refused=("models",)), "--once")
    assert (result.exit_code, result.output) == (1, "Error: forbidden\n")


async def _settled(app: Top, pilot: Any, ready: Any) -> None:
    """Waits until `ready` returns true."""
    deadline = clock.of_this_thread() + MIN_WAIT_SECONDS
    while clock.of_this_thread() < deadline:
        await pilot.pause(0.02)
        if ready():
            return
    raise AssertionError(f"not reached; the screen is {app.screen}")


def test_keys_of_the_live_view() -> None:
    models = [gen.raw(objects.status(readyReplicas=n), name=f"m{n}") for n in range(3)]
    app = Top(Source(Connection(*models), gen.NAMESPACE), "", 60.0)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test(size=(140, 30)) as pilot:
            await _settled(app, pilot, lambda: isinstance(app.screen, Models) and app.screen.overview.rows)
            screen: Any = app.screen
            table: Any = screen.query_one(DataTable)
            assert screen.chosen().endswith("m0")
            await pilot.press("j", "down", "k")
            assert screen.chosen().endswith("m1")
            await pilot.press("s")
            assert screen.chosen().endswith("m1")  # the cursor stays on its TritonModel
            assert screen.sort == 1
            await pilot.press("slash", "m", "2", "enter")
            assert (table.row_count, screen.chosen()) == (1, f"{gen.NAMESPACE}/m2")
            await pilot.press("enter")
            await _settled(app, pilot, lambda: "Events" in str(app.screen.query_one("#body", Static).content)
                           if isinstance(app.screen, Model) else False)  # fmt: skip
            assert MARKUP in str(app.screen.query_one("#body", Static).content)
            await pilot.press("escape")
            assert app.screen is screen
            await pilot.press("escape")
            assert (table.row_count, screen.query_one(Input).display) == (3, False)
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(use())


def test_a_failed_tritonmodel_is_red_also_in_the_row_of_the_cursor() -> None:
    broken = objects.status("False", "ImagePullFailed")
    models = [gen.raw(broken, name="m0"), gen.raw(objects.status(), name="m1")]
    app = Top(Source(Connection(*models), gen.NAMESPACE), "", 60.0)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test(size=(140, 30)) as pilot:
            await _settled(app, pilot, lambda: isinstance(app.screen, Models) and app.screen.overview.rows)
            screen: Any = app.screen
            assert screen.chosen().endswith("m0")
            table: Any = screen.query_one(DataTable)
            styles = [part.style for part in table.render_line(1) if "ImagePullFailed" in part.text]
            assert styles
            assert all(style.color.get_truecolor().red > 100 > style.color.get_truecolor().green for style in styles)

    asyncio.run(use())


def test_live_view_shows_that_the_cluster_cannot_be_read() -> None:
    app = Top(Source(Connection(refused=("models",)), None), "", 60.0)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test() as pilot:
            await _settled(app, pilot, lambda: "forbidden" in str(app.screen.query("#note").first(Static).content)
                           if app.screen.query("#note") else False)  # fmt: skip

    asyncio.run(use())


def test_live_view_of_one_tritonmodel_ends_with_escape() -> None:
    app = Top(Source(Connection(MODEL), None), KEY, 60.0)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test() as pilot:
            await _settled(app, pilot, lambda: isinstance(app.screen, Model))
            await pilot.press("escape")
        assert app.return_code == 0

    asyncio.run(use())


def test_live_view_ends_while_a_server_does_not_answer() -> None:
    """Without waiting for the answer."""
    reading, answer = threading.Event(), threading.Event()

    class Silent(Connection):
        def models(self, namespace: str | None, most: int) -> Any:
            reading.set()
            answer.wait(60)
            return []

    app = Top(Source(Silent(), None), "", 2.0)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test() as pilot:
            await _settled(app, pilot, reading.is_set)
            await pilot.press("q")

    start, before = clock.of_an_idle_machine(), set(threading.enumerate())
    try:
        asyncio.run(use())
        assert clock.of_an_idle_machine() - start < 20
        # Python waits at its end for every other thread.
        assert [t for t in set(threading.enumerate()) - before if not t.daemon] == []
    finally:
        answer.set()


def test_live_view_reads_again_and_again() -> None:
    class Counting(Connection):
        reads = 0

        def models(self, namespace: str | None, most: int) -> Any:
            self.reads += 1
            return super().models(namespace, most)

    connection = Counting(MODEL)
    app = Top(Source(connection, None), "", 0.05)  # type: ignore[arg-type]

    async def use() -> None:
        async with app.run_test() as pilot:
            await _settled(app, pilot, lambda: connection.reads > 3)
            widths = [column.content_width for column in app.screen.query_one(DataTable).ordered_columns]
            assert widths[0] == len(KEY)  # no flicker: the columns keep their widths
            await pilot.press("enter")
            await _settled(app, pilot, lambda: isinstance(app.screen, Model))
            before = connection.reads
            await pilot.pause(0.3)
            assert connection.reads <= before + 1  # nothing reads for a screen that isn't visible
            await pilot.press("escape")
            await _settled(app, pilot, lambda: connection.reads > before + 1)

    asyncio.run(use())
