"""Alerts of a real Prometheus that knows nothing of prometheus-operator: `kubectl triton rules` writes its files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.world import settings
from support import bad_servers, gen, operator_process, prometheus_process
from support.api import Api, Object, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.people import make
from support.prometheus_process import Prometheus
from support.workload_scene import index
from triton_operator.api import names

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("prometheus", path=settings.search_path()), reason="needs Prometheus"),
]

SOON = 90
HOST = f"127.219.{os.getpid() % 250}.7"
PER_SECOND = 20


class Rules:
    """`kubectl triton rules` for a namespace, which writes into two folders and tells Prometheus."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str) -> None:
        self.rules, self.scrapes = folder / "rules", folder / "scrapes"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self.command = [
            str(Path(sys.executable).parent / "kubectl-triton"), "rules", "-n", namespace, "-o", str(self.rules),
            "--scrape-output", str(self.scrapes),
        ]  # fmt: skip

    def once(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.command, *options], env=self._environment, capture_output=True, text=True)

    def running(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.command, *options], env=self._environment, stdout=subprocess.DEVNULL, text=True)


def page() -> bytes:
    """Returns the metrics of a server that answers 20 requests a second."""
    number = int(time.time() * PER_SECOND)
    labels = f'model="{gen.NAME}",version="1"'
    return "".join(
        f"nv_inference_{name}{{{labels}}} {number * factor}\n"
        for name, factor in (
            ("request_success", 1), ("count", 1), ("exec_count", 1), ("request_duration_us", 900),
            ("queue_duration_us", 100), ("compute_infer_duration_us", 800), ("request_failure", 0),
        )
    ).encode()  # fmt: skip


@pytest.fixture
def server() -> Iterator[None]:
    with (
        bad_servers.server(HOST, bad_servers.answers(index("1"))),
        bad_servers.server(HOST, bad_servers.answers_with(page), names.PORTS["metrics"]),
    ):
        yield


def scrape_configs(folder: Path) -> list[Object]:
    """Returns what is in the files, with static targets: this Prometheus is built without Kubernetes' discovery.

    tests/e2e/test_plain_prometheus.py has one with it.
    """
    jobs: list[Object] = [
        job for file in folder.glob("*.yaml") for job in yaml.safe_load(file.read_text())["scrape_configs"]
    ]
    for job in jobs:
        [discovery] = job.pop("kubernetes_sd_configs")
        [namespace] = discovery["namespaces"]["names"]
        pod = {
            "pod_label_tritonoperator_io_model": job["job_name"].partition("/")[2], "namespace": namespace,
            "pod_name": "detection-abc-1", "pod_phase": "Running", "pod_container_name": "triton",
            "pod_container_port_name": "metrics",
        }  # fmt: skip
        labels = {f"__meta_kubernetes_{name}": value for name, value in pod.items()}
        job["static_configs"] = [{"targets": [f"{HOST}:{names.PORTS['metrics']}"], "labels": labels}]
    return jobs


def configure(prometheus: Prometheus, files: Rules, operator: tuple[str, int]) -> None:
    own = {
        "job_name": names.METRICS_JOB, "honor_labels": True, "scrape_interval": "1s",
        "static_configs": [{"targets": [":".join(map(str, operator))]}],
    }  # fmt: skip
    prometheus.configure(scrape_configs=[own, *scrape_configs(files.scrapes)], rule_files=[f"{files.rules}/*.yaml"])


def alerts(prometheus: Prometheus) -> dict[str, str]:
    found: list[Object] = prometheus.ask("alerts")["alerts"]
    return {alert["labels"]["alertname"]: alert["state"] for alert in found}


def test_alerts_come_and_go_without_prometheus_operator(
    control_plane: ControlPlane, api: Api, server: None, tmp_path: Path
) -> None:
    files = Rules(tmp_path, control_plane.kubeconfig, api.namespace)
    with (
        operator_process.running(operator_process.install(control_plane), tmp_path) as operator,
        prometheus_process.running(tmp_path, [], [], options=["--web.enable-lifecycle"]) as prometheus,
    ):
        quick = {"scrapeSeconds": 5, "evaluationSeconds": 5}
        make(api, annotations={"tritonoperator.io/max-qps": "5"}, entrypoint=gen.NAME, replicas=1, monitoring=quick)
        eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
        assert api.find("TritonModel", gen.NAME)["status"].get("entrypointType", "") == ""
        # Until it is known what it is, there are no rules.
        assert files.once().stdout == ""
        add_pod(api, gen.checked(gen.report(gen.NAME, entrypoint=gen.NAME)), gen.put("status.podIP", HOST))
        eventually(lambda: api.get("TritonModel", gen.NAME)["status"].get("entrypointType"), SOON, operator.get)
        [name] = [f"{api.namespace}_{gen.NAME}.yaml"]
        first = files.once()
        assert first.returncode == 0, first.stderr
        assert first.stdout.splitlines() == [f"wrote {folder / name}" for folder in (files.rules, files.scrapes)]
        assert files.once().stdout == ""
        configure(prometheus, files, operator.metrics_address)
        scope = f'{{namespace="{api.namespace}",tritonmodel="{gen.NAME}"'
        eventually(
            lambda: prometheus.value(f'tritonmodel:demand:rate1m{scope},version=""}}') == pytest.approx(20, rel=0.1),
            SOON, lambda: prometheus.ask("targets"),
        )  # fmt: skip
        assert prometheus.value(f"up{scope}}}") == 1
        eventually(
            lambda: alerts(prometheus).get("TritonModelQpsOverflow") == "firing", 180, lambda: alerts(prometheus)
        )

        # A threshold is hot: no file changes.
        api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {"tritonoperator.io/max-qps": "1000"}}})
        eventually(lambda: "TritonModelQpsOverflow" not in alerts(prometheus), SOON, lambda: alerts(prometheus))
        written = (files.rules / name).stat().st_mtime_ns

        # While it runs, it follows the TritonModels, and leaves files of others alone.
        mine = files.rules / "mine.yaml"
        mine.write_text("groups: []\n")
        running = files.running("--every", "5", "--reload", f"http://{prometheus.address}")
        try:
            api.patch("TritonModel", gen.NAME, {"spec": {"monitoring": {"objective": "99"}}})
            eventually(lambda: (files.rules / name).stat().st_mtime_ns != written, SOON, "the new rules")
            eventually(lambda: '"99' in str(prometheus.ask("rules")) or "0.01" in str(prometheus.ask("rules")), SOON)
            api.delete("TritonModel", gen.NAME)
            eventually(lambda: sorted(files.rules.iterdir()) == [mine], SOON, "the end of the rules")
            eventually(lambda: prometheus.ask("rules")["groups"] == [], SOON, lambda: prometheus.ask("rules"))
            assert list(files.scrapes.iterdir()) == []
        finally:
            running.terminate()
            running.wait(10)


def test_files_are_legal_for_prometheus(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    promtool = shutil.which("promtool", path=settings.search_path())
    assert promtool
    files = Rules(tmp_path, control_plane.kubeconfig, api.namespace)
    canary = {"modelImage": {"reference": "r:2"}, "mirror": True}
    route = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"]}
    streaming = {"names": "VLLM"}
    specs: dict[str, Object] = {
        "plain": {}, "copies": {"canary": canary, "route": route}, "scaled": {"autoscaling": {"max": 3}},
        "streams": {"monitoring": {"streaming": streaming, "tokenCounter": "tokens_total"}},
        "silent": {"monitoring": {"enabled": False}},
    }  # fmt: skip
    for name, spec in specs.items():
        make(api, name, **spec)
        status = {"entrypoint": "m", "entrypointType": "Model"}
        api.patch("TritonModel", name, {"status": status}, "status")
    assert files.once().returncode == 0
    written = sorted(file.stem.removeprefix(f"{api.namespace}_") for file in files.rules.iterdir())
    assert written == ["copies", "plain", "scaled", "streams"]
    config = tmp_path / "prometheus.yaml"
    parts = {"rule_files": [f"{files.rules}/*.yaml"], "scrape_configs": scrape_configs(files.scrapes)}
    config.write_text(yaml.safe_dump(parts))
    checked = subprocess.run([promtool, "check", "config", str(config)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    printed = subprocess.run(files.command[:4], env=files._environment, capture_output=True, text=True).stdout
    groups = yaml.safe_load(printed)["groups"]
    assert len(groups) == len({group["name"] for group in groups}) == 12
    scrape = (files.scrapes / f"{api.namespace}_copies.yaml").read_text()
    assert "replacement: copies/copies" in scrape
