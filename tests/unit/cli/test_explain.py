"""`kubectl triton explain-alert`: the text, the picture, the commands, and what it says without Prometheus."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kubectl_triton import cluster
from kubectl_triton.charts import svg, terminal
from kubectl_triton.explain import alerts, chart, explanation, incident
from kubectl_triton.explain.incident import Firing, Numbers
from kubectl_triton.main import main
from kubectl_triton.samples import Alert, NoAnswerError
from support import fleet as objects
from support import gen
from triton_operator.render.rules import alerts as rules

NOW = datetime(2026, 1, 1, 0, 30, tzinfo=UTC).timestamp()
MODEL = gen.raw(objects.status())
OVERFLOW = Firing(Alert("TritonModelQpsOverflow", "critical"), since=NOW - 720)
CURVE = [(NOW - 3600 + 60 * k, 40.0 + k) for k in range(61)]
NUMBERS = Numbers(
    {"demand": [("", 100.0)], "thresholds": [("kind max-qps", 80.0)], "queue": [("model infer", 0.25)],
     "errors": [("", 0.021)], "wanted": [("", 3.0)], "ready": [("", 2.0)]},
    CURVE, [(at, 80.0) for at, _ in CURVE],
)  # fmt: skip
CASE = explanation.Case(
    MODEL, OVERFLOW, True, NOW, alerts.panel(OVERFLOW, gen.NAMESPACE, gen.NAME), NUMBERS
)  # fmt: skip
ESCAPE = "\x1b]0;owned\x07\x9b31m"


class Connection:
    """The API server: one TritonModel without an autoscaler."""

    namespace = gen.NAMESPACE

    def __init__(self, model: Any = MODEL) -> None:
        self._model = model

    def model(self, _: str) -> Any:
        return self._model

    def autoscaler(self, _: Any) -> None:
        return None


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, model: Any = MODEL) -> Any:
    monkeypatch.setattr(cluster, "connect", lambda *_: Connection(model))
    return CliRunner().invoke(main, ["explain-alert", gen.NAME, *arguments])


def test_an_overflow_shows_the_demand_beside_its_limit_and_how_to_raise_it() -> None:
    words = " ".join(explanation.text(CASE).split())
    key = f"{gen.NAMESPACE}/{gen.NAME}"
    assert words.startswith(
        f"TritonModelQpsOverflow (critical) fires for {key}; its condition holds since 2026-01-01 00:18:00Z (12m)"
    )
    assert "For 30 seconds, the demand has been above `max-qps`." in words
    assert "demand 100 requests/s" in words
    assert "threshold max-qps 80, accepted 30m ago from the annotation tritonoperator.io/max-qps" in words
    assert "time in the queue, model infer 250 ms" in words
    assert "failed requests 2.1 % of the last five minutes" in words
    assert "servers 2 ready of 2 wanted; Prometheus has 2 of 3" in words
    assert "- Which client sends more than agreed?" in words
    # The highest demand of the last hour is 100, and a fifth more is 120.
    annotate = f"kubectl annotate tm/{gen.NAME} -n {gen.NAMESPACE} tritonoperator.io/max-qps=120 --overwrite"
    assert "Next command (if the load is expected and the servers have the capacity; " in words
    assert f"otherwise the second command) {annotate}" in words
    assert words.endswith("/runbooks/TritonModelQpsOverflow.md")


def test_the_limit_of_a_version_has_its_own_annotation() -> None:
    firing = replace(OVERFLOW, about="version 2")
    assert "tritonoperator.io/max-qps.v2=120 " in explanation.text(replace(CASE, firing=firing))


def test_the_text_says_which_client_wrote_a_threshold() -> None:
    fields = {"f:metadata": {"f:annotations": {"f:tritonoperator.io/max-qps": {}}}}
    entry = {"manager": "kubectl-annotate", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}
    model = gen.raw(objects.status(), gen.put("metadata.managedFields", [entry]))
    words = " ".join(explanation.text(replace(CASE, model=model)).split())
    assert "written at 2026-01-01T00:00:00Z by a client that names itself kubectl-annotate" in words


def test_a_threshold_that_the_rules_do_not_use_yet_is_marked() -> None:
    numbers = replace(NUMBERS, now={**NUMBERS.now, "thresholds": [("kind max-qps", 100.0)]})
    assert "; the rules use 100" in " ".join(explanation.text(replace(CASE, numbers=numbers)).split())


def test_other_alerts_are_named() -> None:
    other = Firing(Alert("TritonModelQueueDuration", "warning"), "model infer", NOW - 60)
    assert "Fires too: TritonModelQueueDuration, model infer; its condition" in explanation.text(
        replace(CASE, others=[other])
    )


def test_no_line_has_control_characters() -> None:
    model = gen.raw(objects.status("False", ESCAPE, ESCAPE))
    firing = Firing(Alert("TritonModelNotServing", ESCAPE), ESCAPE)
    text = explanation.text(replace(CASE, model=model, firing=firing, notes=[ESCAPE]))
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("since", [float("nan"), float("inf"), -1e30, 1e30])
def test_a_time_that_is_not_one_is_not_an_error(since: float) -> None:
    assert "fires for" in explanation.text(replace(CASE, firing=replace(OVERFLOW, since=since)))


@pytest.mark.parametrize("name", alerts.NAMES)
def test_every_alert_has_a_picture_first_steps_and_a_command(name: str) -> None:
    firing = Firing(Alert(name, "warning"))
    series = alerts.panel(firing, "a", "b")
    assert series.name
    assert 'namespace="a",tritonmodel="b"' in series.value
    text = explanation.text(replace(CASE, firing=firing, panel=series))
    assert re.search(r"First steps\n  - [\w`]", text)
    assert re.search(r"Next command.*\n  kubectl ", text)


def test_the_first_steps_name_the_namespace_and_the_pod() -> None:
    firing = Firing(Alert("TritonModelServerRestarts", "warning"), "pod detector-5c9f-x7k2p")
    words = " ".join(explanation.text(replace(CASE, firing=firing)).split())
    log = f"kubectl logs detector-5c9f-x7k2p -n {gen.NAMESPACE} -c triton"
    assert f"`{log} --previous`: the last lines." in words
    assert f"{log} --tail=50 --previous" in words, "not the log of another server"


@pytest.mark.parametrize("about", ["pod $(reboot)", "pod ", "model a, pod "])
def test_an_invalid_pod_name_is_not_put_into_a_command(about: str) -> None:
    firing = Firing(Alert("TritonModelServerRestarts", "warning"), about)
    log = alerts.commands(firing, "a", "b", None, None)[1]
    assert log == "kubectl logs deploy/b -n a -c triton --tail=50 --previous"


@pytest.mark.parametrize("alert", ["TritonModelServersMissing", "TritonModelRequestFailures"])
def test_suggests_the_logs_of_all_servers_if_some_have_a_problem(alert: str) -> None:
    log = alerts.commands(Firing(Alert(alert, "warning")), "a", "b", None, None)[1]
    assert log.startswith("kubectl logs -l tritonoperator.io/model=b -n a -c triton --prefix --tail=50")


def test_every_alert_of_the_rules_has_a_runbook() -> None:
    source = Path(rules.__file__).read_text()
    assert set(re.findall(r'"(TritonModel\w+)"', source)) <= set(alerts.NAMES)


@pytest.mark.parametrize(
    ("peak", "limit"), [(100, "120"), (96.1, "120"), (7.3, "8.8"), (0.04, "0.048"), (12345, "15000"), (None, "N")]
)
def test_the_proposed_limit_is_above_the_peak(peak: float | None, limit: str) -> None:
    first = alerts.commands(OVERFLOW, "a", "b", peak, None)[0]
    assert first == f"kubectl annotate tm/b -n a tritonoperator.io/max-qps={limit} --overwrite"


def test_the_svg_has_both_curves_and_no_markup_of_others() -> None:
    case = replace(CASE, firing=replace(OVERFLOW, alert=Alert("<script>", "")))
    root = ElementTree.fromstring(svg([explanation.hour(case)]))
    paths = [e for e in root.iter() if e.tag.endswith("path")]
    assert len(paths) == 3, "the demand, the limit, and the start of the alert"
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    words = "".join(root.itertext())
    assert "max-qps 80" in words
    assert "00:18Z its condition begins" in words


def test_a_line_is_interrupted_where_values_are_missing() -> None:
    values = [(NOW - 600, 1.0), (NOW - 540, 2.0), (NOW - 60, 3.0), (NOW, 4.0)]
    root = ElementTree.fromstring(svg([chart.chart(replace(HOUR, value=values, limit=(), since=None))]))
    paths = [e.attrib["d"].split() for e in root.iter() if e.tag.endswith("path")]
    assert [path.count("L") for path in paths] == [1, 1]


def test_values_at_the_ends_of_the_hour_are_drawn() -> None:
    """Prometheus' times are whole seconds, and those of the command have fractions."""
    values = [(NOW - 3600.4, 1.0), (NOW + 0.4, 2.0)]
    for ends in (values, values[:1], values[1:]):
        drawing = chart.chart(replace(HOUR, value=ends, limit=ends, since=None))
        for series in drawing.series:
            assert sum(y is not None for _, y in drawing.inside(series)) == len(ends)
        ElementTree.fromstring(svg([drawing]))


def test_without_values_no_svg_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "alert.svg"
    result = run(monkeypatch, "QpsOverflow", "--svg", str(file))
    assert f"{file} isn't written: Prometheus has no values of the last hour" in result.output
    assert not file.exists()


def test_the_picture_of_a_version_shows_its_demand_and_its_limit() -> None:
    series = alerts.panel(replace(OVERFLOW, about="version 2"), "a", "b")
    assert series.value.endswith(',version="2"}')
    assert series.limit.endswith(',version="2"}')
    assert series.limit_name == "max-qps.v2"
    assert alerts.panel(replace(OVERFLOW, about="version canary"), "a", "b").limit_name == "max-qps.canary"


HOUR = chart.Hour("", "demand", "requests/s", NOW, CURVE, NUMBERS.limit, "max-qps", NOW - 720)


def test_the_terminal_draws_the_value_the_limit_and_the_start_of_the_alert() -> None:
    lines = terminal(chart.chart(HOUR))
    rows = {line.partition("|")[0].strip(): line.partition("| ")[2] for line in lines}
    assert lines[0] == "Demand in requests/s, the last hour"
    assert rows["72"].count("-") == 61, "the limit is between 72 and 84"
    assert rows["120"].index("⡀") == 48, "the alert began twelve minutes ago"
    assert lines[-2].split()[1:] == ["23:30Z", "23:40Z", "23:50Z", "00:00Z", "00:10Z", "00:20Z", "00:30Z"]
    assert [words.strip() for words in lines[-1].split("   ") if words] == [
        "- max-qps 80", "⠤ demand 100", "⡇ 00:18Z its condition begins"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("highest", "top"),
    [(96.0, 120), (95.0, 100), (2.0, 2.5), (9.0, 10), (12.0, 15), (0.0, 1), (0.03, 0.04)],
)
def test_a_chart_ends_above_its_highest_value(highest: float, top: float) -> None:
    assert chart.chart(replace(HOUR, value=[(NOW, highest)], limit=[])).top == pytest.approx(top)


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 1e-9, 1e15])
def test_a_strange_value_is_drawn_inside_the_chart(value: float) -> None:
    drawing = chart.chart(replace(HOUR, value=[(NOW - 60, value), (NOW, 1.0)], limit=[]))
    assert len(terminal(drawing)) == 15
    ElementTree.fromstring(svg([drawing]))


def test_without_prometheus_it_explains_the_given_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, "QpsOverflow")
    assert result.exit_code == 0
    assert result.output.startswith("TritonModelQpsOverflow may fire for")
    assert "threshold max-qps" in result.output
    assert "tritonoperator.io/max-qps=N --overwrite" in result.output
    assert "without --prometheus URL" in result.output


def test_without_prometheus_the_status_suggests_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    down = gen.raw(objects.status("False", "CrashLoop", "exit code 1", readyReplicas=0))
    assert "TritonModelNotServing may fire" in run(monkeypatch, model=down).output
    fine = run(monkeypatch)
    assert fine.exit_code == 1
    assert "name an alert: the status" in fine.output


def test_an_unknown_alert_is_an_error_that_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, "Qps")
    assert result.exit_code == 2
    assert "QpsOverflow" in result.output


def test_it_says_so_if_no_alert_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident, "firing", lambda *_: [])
    result = run(monkeypatch, "--prometheus", "http://x")
    assert (result.exit_code, result.output) == (0, f"no alert of {gen.NAME} fires\n")


def test_a_prometheus_without_answer_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[Firing]:
        raise NoAnswerError("no answer from Prometheus at http://x")

    monkeypatch.setattr(incident, "firing", fail)
    result = run(monkeypatch, "QpsOverflow", "--prometheus", "http://x")
    assert result.exit_code == 0
    assert "Note: no answer from Prometheus at http://x" in result.output


def test_the_wheel_has_the_runbooks() -> None:
    assert set(json.loads(Path(alerts.__file__).with_name("runbooks.json").read_text())) >= set(alerts.NAMES)
