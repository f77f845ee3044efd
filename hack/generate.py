"""Writes the generated files that are checked in. With --check, only reports the stale ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import environment

if __name__ == "__main__":
    environment.restart()

import alert_picture
import compatibility_page
import dashboards
import helm_chart
import permissions_page
import reasons_page
import recording
import runbook_steps
import stamps
import top_picture
import validate_page
import world_page
import yaml_text
from dashboards import grafana, page

from triton_operator.manifests import crd, rbac

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = Path("manifests/monitoring/dashboards")


def generated() -> dict[Path, str]:
    """Returns the text of each generated file, by path."""
    stamped = stamps.files()
    return {
        # First, because the others may generate some of these files.
        **stamped,
        Path("crds/tritonoperator.io_tritonmodels.yaml"): yaml_text.text(crd.definition()),
        Path("manifests/rbac/operator.yaml"): yaml_text.text(*rbac.manifests()),
        Path("manifests/rbac/roles.yaml"): yaml_text.text(*rbac.roles()),
        Path("manifests/namespaced/role.yaml"): yaml_text.text(*rbac.namespaced()),
        Path("docs/permissions.md"): permissions_page.text(),
        reasons_page.PAGE: reasons_page.page(stamped[reasons_page.PAGE]),
        **{DASHBOARDS / f"{d.name}.json": grafana.text(d) for d in dashboards.ALL},
        DASHBOARDS / "kustomization.yaml": yaml_text.text(grafana.kustomization(dashboards.ALL)),
        Path("docs/dashboards.md"): page.text(dashboards.ALL),
        Path("docs/validate.md"): validate_page.text(),
        Path("docs/bare-machine.md"): world_page.text(),
        **compatibility_page.pages(),
        **helm_chart.files(),
        Path("docs/images/explain-alert.svg"): alert_picture.text(),
        Path("docs/images/top.svg"): top_picture.text(),
        **recording.files(),
        Path("operator/kubectl_triton/explain/runbooks.json"): runbook_steps.text(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    check = parser.parse_args().check
    stale = []
    for path, text in generated().items():
        target = ROOT / path
        if target.exists() and target.read_text() == text:
            continue
        stale.append(path)
        if not check:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            print(f"wrote {path}")
    if check and stale:
        print("stale, run `make generate`:", *stale, sep="\n  ", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
