"""examples/dingtalk: a real Alertmanager sends our alerts, and the template makes them messages.

prometheus-webhook-dingtalk itself isn't among the packages that the tests reach. In its place the test receives what
Alertmanager sends, and renders the template with amtool, which has Alertmanager's data and the same engine.
"""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import yaml

from hack.world.parts import monitoring
from rules.case import expected_alerts, load
from support import ports
from support.api import eventually

pytestmark = pytest.mark.e2e
Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "dingtalk"
TEMPLATE = EXAMPLE / "triton.tmpl"
RULES = ROOT / "tests" / "rules"
IMAGE = monitoring.ALERTMANAGER
TARGET = yaml.safe_load((EXAMPLE / "config.yaml").read_text())["targets"]["triton"]


class Alertmanager:
    """A running Alertmanager with the example's configuration, and what it sends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent: Queue[tuple[str, Object]] = Queue()

    def post(self, *alerts: Object, **times: str) -> None:
        """Sends alerts as Prometheus does."""
        body = json.dumps([{**alert, **times} for alert in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/v2/alerts", body, headers)
        urllib.request.urlopen(request, timeout=10).close()

    def is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    port, peer, hook = ports.free(3)
    running = Alertmanager(port)

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            running.sent.put((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not into the tests' output."""

    config = yaml.safe_load((EXAMPLE / "alertmanager.yaml").read_text())
    config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    [receiver] = config["receivers"][0]["webhook_configs"]
    receiver["url"] = re.sub(r"//[^/]*/", f"//127.0.0.1:{hook}/", receiver["url"])
    file = tmp_path / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(config))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", hook), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file.chmod(0o644)
    name = f"dingtalk-test-{port}"
    command = [
        "docker", "run", "--rm", "--detach", f"--name={name}", "--network=host",
        f"--volume={file}:/alertmanager.yaml:ro",
        IMAGE, "--config.file=/alertmanager.yaml", "--storage.path=/tmp", f"--web.listen-address=127.0.0.1:{port}",
        f"--cluster.listen-address=127.0.0.1:{peer}",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    try:
        eventually(running.is_ready, 30, "Alertmanager")
        yield running
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=True, capture_output=True)
        server.shutdown()
        server.server_close()


def rendered(message: Mapping[str, Any], tmp_path: Path) -> tuple[str, str]:
    """Returns the title and the text of the robot's message."""
    template, data = tmp_path / "triton.tmpl", tmp_path / "data.json"
    # amtool has no function `markdown`, which puts a backslash before _, * and `.
    template.write_text(TEMPLATE.read_text().replace(" | markdown", ""))
    data.write_text(json.dumps(message))
    for file in (template, data):
        file.chmod(0o644)
    command = [
        "docker", "run", "--rm", "--network=none", f"--volume={template}:/triton.tmpl:ro",
        f"--volume={data}:/data.json:ro", "--entrypoint=amtool", IMAGE, "template", "render",
        "--template.glob=/triton.tmpl", "--template.data=/data.json",
    ]  # fmt: skip
    title, text = (
        subprocess.run(
            [*command, f"--template.text={TARGET['message'][part]}"], capture_output=True, text=True, check=True
        )
        for part in ("title", "text")
    )
    return title.stdout.removesuffix("\n"), text.stdout


def test_alerts_become_messages_of_a_robot(alertmanager: Alertmanager, tmp_path: Path) -> None:
    alert = expected_alerts(load(RULES / "cases" / "canary.yaml"))[0]
    alertmanager.post(alert, startsAt="2026-11-23T10:43:40Z")
    path, message = alertmanager.sent.get(timeout=30)
    assert path == "/dingtalk/triton/send"
    title, text = rendered(message, tmp_path)
    assert title == "[FIRING] TritonModelQpsOverflow vision/detection"
    assert text.startswith(
        "#### CRITICAL: vision/detection version 2 gets 10 requests/s, more than its max-qps of 8\n"
        "\nThe demand, which includes failed and queued requests, is above the limit; "
    )
    assert text.endswith(
        "\n\n- TritonModel: vision/detection\n"
        "- Alert: TritonModelQpsOverflow, since 2026-11-23 10:43:40 UTC\n"
        f"- [Runbook]({alert['annotations']['runbook_url']})\n\n"
    )
    assert "no value" not in title + text

    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    alertmanager.post(alert, startsAt="2026-11-23T10:43:40Z", endsAt=now)
    title, text = rendered(alertmanager.sent.get(timeout=30)[1], tmp_path)
    assert title == "[RESOLVED] TritonModelQpsOverflow vision/detection"
    assert text.startswith("#### Resolved: vision/detection version 2 gets 10 requests/s")


def test_alerts_of_the_operator_have_no_tritonmodel(alertmanager: Alertmanager, tmp_path: Path) -> None:
    cases = yaml.safe_load((RULES / "operator.yaml").read_text())["tests"]
    [expected] = [
        a for case in cases for a in case.get("alert_rule_test", []) if a["alertname"] == "TritonOperatorDown"
    ][:1]
    [one] = expected["exp_alerts"]
    labels = {"alertname": "TritonOperatorDown", **one["exp_labels"]}
    alertmanager.post({"labels": labels, "annotations": one["exp_annotations"]})
    title, text = rendered(alertmanager.sent.get(timeout=30)[1], tmp_path)
    assert title == "[FIRING] TritonOperatorDown"
    assert text.startswith("#### CRITICAL: No replica of the Triton operator is up\n")
    assert "TritonModel:" not in text
