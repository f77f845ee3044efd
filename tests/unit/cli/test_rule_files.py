"""`kubectl triton rules`: which files it writes, leaves and removes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kubectl_triton import cluster, rule_files
from kubectl_triton.main import main
from support import bad_servers, gen
from triton_operator.render.facts import RenderSettings

ROOT = Path(__file__).resolve().parents[3]
Object = dict[str, Any]
POD = "__meta_kubernetes_pod_"
KNOWN = {"entrypoint": "m", "entrypointType": "Model", "replicas": 1}


def model(name: str = "a", status: Object | None = KNOWN, **spec: Any) -> Object:
    return gen.raw(gen.put("metadata.name", name), gen.put("status", status or {}), **spec)


class Connection:
    """A cluster whose TritonModels are those of `states`, one after the other; an exception is raised."""

    namespace = gen.NAMESPACE

    def __init__(self, *states: Any) -> None:
        self._states = list(states)
        self.asked: list[str | None] = []

    def models(self, namespace: str | None, _: int) -> list[Object]:
        self.asked.append(namespace)
        state = self._states.pop(0)
        if isinstance(state, BaseException):
            raise state
        return list(state)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(connection: Connection, *arguments: str) -> Result:
        monkeypatch.setattr(cluster, "connect", lambda *_: connection)
        monkeypatch.setattr(rule_files.time, "sleep", lambda _: None)
        return CliRunner().invoke(main, ["rules", *arguments])

    return run


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_prints_all_rules_as_one_file(run: Any) -> None:
    connection = Connection(
        [model("a"), model("b"), model("waits", status=None), model("off", monitoring={"enabled": False})]
    )
    result = run(connection, "-A")
    assert result.exit_code == 0
    assert connection.asked == [None]
    groups = yaml.safe_load(result.output)["groups"]
    assert [group["name"] for group in groups] == [
        f"{gen.NAMESPACE}/{name}{part}" for name in ("a", "b") for part in ("-limits", "", "-slow")
    ]
    assert yaml.safe_load(run(Connection([]), "-A").output) == {"groups": []}


def test_files_follow_the_tritonmodels(run: Any, tmp_path: Path) -> None:
    rules, scrapes = tmp_path / "rules", tmp_path / "scrapes"
    arguments = ("-o", str(rules), "--scrape-output", str(scrapes))
    assert run(Connection([model("a"), model("b")]), *arguments).exit_code == 0
    names = [f"{gen.NAMESPACE}_a.yaml", f"{gen.NAMESPACE}_b.yaml"]
    assert written(rules) == written(scrapes) == names
    before = {path: path.stat().st_mtime_ns for folder in (rules, scrapes) for path in folder.iterdir()}
    # Files of others stay, also those that look like its own.
    for name in ("mine.yaml", f"{gen.NAMESPACE}_c.yaml", "other_d.yaml"):
        (rules / name).write_text("groups: []\n")
    (rules / "other_e.yaml").write_text(rule_files._HEAD.format("other/e"))
    (rules / "binary.yaml").write_bytes(b"\xff\xfe")
    result = run(Connection([model("a"), model("b", monitoring={"objective": "99"})]), *arguments)
    assert result.output == f"wrote {rules / names[1]}\n"
    assert [path for path, at in before.items() if path.stat().st_mtime_ns != at] == [rules / names[1]]
    result = run(Connection([model("a", monitoring={"enabled": False})]), *arguments)
    assert result.output.splitlines() == [f"removed {folder / name}" for folder in (rules, scrapes) for name in names]
    assert "other_e.yaml" in written(rules), "it is of another namespace"
    run(Connection([]), "-A", *arguments)
    assert written(rules) == ["binary.yaml", "mine.yaml", "other_d.yaml", f"{gen.NAMESPACE}_c.yaml"]


def test_what_can_not_be_read_leaves_former_rules(run: Any, tmp_path: Path) -> None:
    arguments = ("-o", str(tmp_path))
    run(Connection([model("a"), model("b")]), *arguments)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    odd = model("a")
    odd["spec"]["replicas"] = "many"
    result = run(Connection([odd, model("b", status=None)]), *arguments)
    assert result.exit_code == 0
    assert f"{gen.NAMESPACE}/a: its files stay as they are, because its spec can't be read" in result.output
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_an_api_server_that_is_away_removes_nothing_and_is_tried_again(run: Any, tmp_path: Path) -> None:
    away = cluster.UnreachableError("no answer\x1b[2J")
    result = run(Connection(away), "-o", str(tmp_path))
    assert (result.exit_code, result.output) == (1, "Error: no answer?[2J\n")
    states = [[model("a")], away, [model("a"), model("b")], KeyboardInterrupt()]
    result = run(Connection(*states), "-o", str(tmp_path), "--every", "5")
    assert "no answer" in result.output
    assert len(written(tmp_path)) == 2


def test_a_disk_that_is_full_is_told(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(Connection([model("a")]), "-o", str(tmp_path / "file" / "rules"))
    assert result.exit_code == 1
    assert "Not a directory" in result.output


@pytest.mark.parametrize("status", ["200 OK", "500 no"])
def test_prometheus_reads_what_has_changed(run: Any, tmp_path: Path, status: str) -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers_with(lambda: b"rules: bad", status), 0) as served:
        arguments = ("-o", str(tmp_path), "--reload", f"http://{served.address}/")
        result = run(Connection([model("a")]), *arguments)
        assert (result.exit_code, served.connections) == ((0, 1) if status[0] == "2" else (1, 1))
        assert ("refuses the files with the HTTP status 500: rules: bad" in result.output) == (status[0] == "5")
        # Files that haven't changed are read again only if they weren't read.
        states = [[model("a")], [model("a")], [model("a", monitoring={"objective": "99"})], KeyboardInterrupt()]
        run(Connection(*states), *arguments, "--every", "5")
        assert served.connections == 2
    result = run(Connection([model("b")]), *arguments)
    assert result.exit_code == 1
    assert "doesn't answer" in result.output
    states = [[model("c")], [model("c")], KeyboardInterrupt()]
    assert run(Connection(*states), *arguments, "--every", "5").output.count("doesn't answer") == 2


@pytest.mark.parametrize("option", [["--every", "5"], ["--reload", "http://a"], ["--scrape-output", "x"]])
def test_options_that_need_a_folder(run: Any, option: list[str]) -> None:
    result = run(Connection(), *option)
    assert result.exit_code == 2
    assert "need --output" in result.output


def test_a_limit_that_the_gateway_enforces_changes_the_alert(run: Any) -> None:
    said = {"type": "Enforced", "status": "True", "reason": "Live", "message": "m"}
    annotated = gen.modified(
        model(route={"gateway": {"name": "g"}, "hostnames": ["a.example.com"]}),
        gen.put("metadata.annotations", {"tritonoperator.io/max-qps": "10", "tritonoperator.io/enforce": "true"}),
    )
    alerts = []
    for conditions in ([said], []):
        state = gen.modified(annotated, gen.put("status", {**KNOWN, "conditions": conditions}))
        text = run(Connection([state])).output
        alerts.append("TritonModelAtMaxQps" in text)
    assert alerts == [True, False]


def test_it_runs_with_the_packages_of_the_operators_image(tmp_path: Path) -> None:
    locks = [(ROOT / "requirements" / f"{name}.lock").read_text() for name in ("plugin", "operator")]
    plugin, operator = (set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)) for lock in locks)
    missing = sorted(name.replace("-", "_") for name in plugin - operator)
    assert {"leather", "textual"} <= set(missing)
    program = f"import sys; sys.modules.update(dict.fromkeys({missing})); import runpy; sys.argv[1:] = ['--help']; "
    program += "runpy.run_module('kubectl_triton.rule_files', run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "operator", capture_output=True, text=True)
    assert (run.returncode, "--scrape-output" in run.stdout) == (0, True), run.stderr
    assert "kubectl_triton.rule_files" in (ROOT / "manifests/monitoring/plain/prometheus.yaml").read_text()


def test_measured_latency_is_scraped_in_a_configuration_of_its_own() -> None:
    found = rule_files.files(model(monitoring={"latency": {"p99": "200ms"}}), RenderSettings())
    assert found
    servers, latency = found.scrape["scrape_configs"]
    assert latency["job_name"] == f"{servers['job_name']}/latency"
    kept = [r["regex"] for r in latency["relabel_configs"] if r.get("source_labels") == [f"{POD}container_port_name"]]
    assert kept == ["latency"]
    # The rules count the servers by `up`, which has the labels of the target.
    assert "tritonmodel" not in {r.get("target_label") for r in latency["relabel_configs"]}
    assert "tritonmodel" in {r.get("target_label") for r in latency["metric_relabel_configs"]}
