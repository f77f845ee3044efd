"""examples/dingtalk: its files name each other, and its template reads only what our alerts have."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rules.case import expected_alerts, load
from support import gen
from triton_operator.render.prometheus_rule import prometheus_rule

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "dingtalk"
CASES = [load(path) for path in sorted((ROOT / "tests" / "rules" / "cases").glob("*.yaml"))]


def read(name: str) -> set[str]:
    """Returns the fields of .Labels or another map that the template reads."""
    return set(re.findall(rf"\.{name}\.(\w+)", (EXAMPLE / "triton.tmpl").read_text()))


def test_the_template_reads_only_what_our_alerts_have() -> None:
    rules = [yaml.safe_load((ROOT / "manifests" / "monitoring" / "rules.yaml").read_text())]
    rules += [prometheus_rule(gen.model(**case.spec), case.facts) for case in CASES]
    alerts = [rule for each in rules for group in each["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert len({alert["alert"] for alert in alerts}) > 25
    for alert in alerts:
        assert alert["annotations"].keys() >= read("Annotations"), alert["alert"]
        assert "severity" in alert["labels"]
    assert read("Annotations") == {"summary", "description", "runbook_url"}
    # namespace and tritonmodel come from the expressions; the tests of the rules compare them.
    assert read("Labels") == {"alertname", "severity", "namespace", "tritonmodel"}
    expected = [alert for case in CASES for alert in expected_alerts(case)]
    assert len(expected) > 10
    assert all({"severity", "namespace", "tritonmodel"} <= alert["labels"].keys() for alert in expected)
    grouped = yaml.safe_load((EXAMPLE / "alertmanager.yaml").read_text())["route"]["group_by"]
    assert read("GroupLabels") == set(grouped)


def test_the_parts_name_each_other() -> None:
    deployment, service = yaml.safe_load_all((EXAMPLE / "webhook.yaml").read_text())
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    kustomization = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    [receiver] = yaml.safe_load((EXAMPLE / "alertmanager.yaml").read_text())["receivers"]
    [port] = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{kustomization['namespace']}.svc:{port['port']}"
    [target] = config["targets"]
    assert receiver["webhook_configs"][0]["url"] == f"http://{host}/dingtalk/{target}/send"
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= service["spec"]["selector"].items()
    files = {
        f"/config/{file}"
        for key in ("secretGenerator", "configMapGenerator")
        for file in kustomization[key][0]["files"]
    }
    [container] = pod["spec"]["containers"]
    assert files == {*config["templates"], container["args"][0].partition("=")[2]}
    assert all((EXAMPLE / Path(file).name).is_file() for file in files)
