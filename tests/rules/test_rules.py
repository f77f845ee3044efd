"""The rendered rules, evaluated by promtool on the series in tests/rules/cases."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.world import settings
from kubectl_triton import samples
from rules.case import LABELS, Case, document, load, threshold_key
from support import gen
from triton_operator.api import thresholds
from triton_operator.render.facts import Facts
from triton_operator.render.prometheus_rule import prometheus_rule

pytestmark = pytest.mark.rules

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))

UNUSUAL_NAMES = [
    "plain",
    'quote"d',
    "back\\slash",
    "trailing\\",
    "it's",
    "`tick`",
    "{{ $value }}",
    "$1",
    "%s",
    "ü–☃",
    "a\x01b",
]
VARIANTS: dict[str, dict[str, Any]] = {
    "minimal": {},
    "no-alerts": {"monitoring": {"alerts": False}},
    "tokens": {"monitoring": {"tokenCounter": "made:tokens_total"}},
    "streaming": {"monitoring": {"streaming": {"names": "VLLM", "failed": "on", "running": "nan"}}},
    "scaling": {"autoscaling": {"max": 8, "predict": True, "utilization": 0.6}},
    "to-zero": {"autoscaling": {"min": 0, "max": 8}},
    "slow": {"monitoring": {"scrapeSeconds": 300, "evaluationSeconds": 300}},
    "loose": {"monitoring": {"objective": "50"}},
    "labels": {"monitoring": {"alertLabels": {"team": "{{ vision", "not-a-label": "x", "severity": "none"}}},
}


@pytest.fixture(scope="session")
def promtool() -> str:
    path = shutil.which("promtool", path=settings.search_path())
    assert path, "these tests need promtool; skip them with -m 'not rules'"
    return path


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_rules_evaluate_as_the_case_expects(path: Path, promtool: str, tmp_path: Path) -> None:
    assert_rules(load(path), promtool, tmp_path)


def stream_duration(model: str, seconds: int) -> dict[str, str]:
    """Returns the histogram of streams whose median has half of these seconds."""
    bucket = f'vllm:e2e_request_latency_seconds_bucket{{{LABELS},pod="a",model="{model}",version="1",le='
    return dict.fromkeys((f'{bucket}"{seconds}"}}', f'{bucket}"+Inf"}}'), "0+10x60")


def counts(every: float, scrape: int, phase: float, scrapes: int) -> str:
    """Returns the counter of a server that gets one request each `every` seconds, at each scrape."""
    return " ".join(str(int((scrape * n + phase * every) // every)) for n in range(scrapes))


@pytest.mark.parametrize("scrape", [5, 10, 30])
@pytest.mark.parametrize("every", [5, 7, 10, 45, 600])
@pytest.mark.parametrize("busy", [False, True], ids=["health-requests", "a-client"])
def test_health_requests_never_look_like_a_client(
    every: int, scrape: int, busy: bool, promtool: str, tmp_path: Path
) -> None:
    """A client with a request in ten seconds to each server more does."""
    scrapes, tests = 1800 // scrape, []
    minutes = [f"{seconds}s" for seconds in range(240, 1700, 30)]
    values = {"count(tritonmodel:load_replicas:max > 0) or vector(0)": dict.fromkeys(minutes, int(busy))}
    for phase in (0.0, 0.13, 0.5, 0.97):
        health = counts(every, scrape, phase, scrapes).split()
        client = counts(10, scrape, phase, scrapes).split() if busy else ["0"] * scrapes
        numbers = " ".join(str(int(a) + int(b)) for a, b in zip(health, client, strict=True))
        series = {
            f"up{{{LABELS}}}": f"1x{scrapes}",
            f'nv_inference_request_success{{{LABELS},model="net",version="1"}}': numbers,
        }
        tests.append({"name": f"health {phase}", "series": series, "values": values})
    spec = {
        "healthRequest": {"file": "net/health.json", "everySeconds": every},
        "autoscaling": {"engine": "KEDA", "min": 0, "max": 4},
        "monitoring": {"scrapeSeconds": scrape, "evaluationSeconds": scrape},
    }
    facts = Facts(
        "operator:1", "Copy", entrypoint="net", thresholds=thresholds.effective({threshold_key("max-qps"): 80}, 4)
    )
    assert_rules(Case(spec, facts, f"{scrape}s", tests), promtool, tmp_path)


def test_health_requests_are_load_where_they_keep_no_server() -> None:
    """They are requests that a server must answer."""
    request = {"healthRequest": {"file": "net/health.json"}}
    facts = Facts("operator:1", "Copy", entrypoint="net")
    for scaling in ({"max": 4}, {"engine": "Direct", "max": 4}, {"engine": "KEDA", "min": 1, "max": 4}):
        with_request, without = (
            prometheus_rule(gen.model(autoscaling=scaling, **more), facts) for more in (request, {})
        )
        assert with_request["spec"] == without["spec"]


STREAMS = {"streaming": {"names": "VLLM"}}


@pytest.mark.parametrize(
    ("monitoring", "decoupled", "streams", "expected"),
    [
        ({}, (), {}, 0.025),
        ({}, ("net",), {}, "none"),
        (STREAMS, ("net",), stream_duration("net", 4), 2),
        (STREAMS, ("net",), stream_duration("other", 4), "none"),
        # The check of an older operator doesn't report decoupled models.
        (STREAMS, (), stream_duration("net", 4), 2),
        (STREAMS, ("other",), stream_duration("other", 4), 0.025),
        (STREAMS, ("net",), stream_duration("net", 4) | stream_duration("other", 100), 2),
    ],
)
def test_top_has_the_duration_of_streams_instead_of_tritons_latency(
    monitoring: dict[str, Any], decoupled: tuple[str, ...], streams: dict[str, str], expected: float | str,
    promtool: str, tmp_path: Path,
) -> None:  # fmt: skip
    """Triton measures until `execute` returns: here 25 ms, while a stream lasts 2 s on average."""
    of_entry = f'{LABELS},pod="a",model="net",version="1"'
    series = {
        f'nv_inference_request_summary_us{{{of_entry},quantile="0.5"}}': "25000x60",
        f"nv_inference_request_success{{{of_entry}}}": "0+10x60",
        **streams,
    }
    test = {"name": "top", "series": series, "values": {samples.queries(None)["p50"]: {"3m": expected}}}
    facts = Facts("operator:1", "Copy", entrypoint="net", decoupled=decoupled)
    case = Case({"monitoring": monitoring}, facts, "10s", [test])
    assert_rules(case, promtool, tmp_path)


@pytest.mark.parametrize("ensemble", [False, True], ids=["model", "ensemble"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rules_are_valid_for_any_model_name(variant: str, ensemble: bool, promtool: str, tmp_path: Path) -> None:
    model = gen.model(**VARIANTS[variant])
    files = []
    for place, name in enumerate(["", *UNUSUAL_NAMES]):
        rule = prometheus_rule(
            model, Facts("operator:1", "Copy", entrypoint=name, ensemble=ensemble, decoupled=(name,))
        )
        files.append(str(write(tmp_path / f"{place}.yaml", rule["spec"])))
    result = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def assert_rules(case: Case, promtool: str, folder: Path) -> None:
    """Checks that promtool finds in the rules what the case expects."""
    rules = write(folder / "rules.yaml", rendered(case))
    tests = write(folder / "tests.yaml", document(case, rules.name))
    result = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def rendered(case: Case) -> dict[str, Any]:
    spec = prometheus_rule(gen.model(**case.spec), case.facts)["spec"]
    assert isinstance(spec, dict)
    return spec


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, allow_unicode=True))
    return path
