"""Writes the generated files that are checked in. With --check, only reports the stale ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import dashboards
import permissions_page
import validate_page
import world_page
import yaml
from dashboards import grafana, page

from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.manifests import crd, policies, rbac

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = Path("manifests/monitoring/dashboards")
HEADER = "# Made by `make generate`; change the code that it is made from instead.\n"


def generated() -> dict[Path, str]:
    """Returns the text of each generated file, by path."""
    return {
        Path("crds/tritonoperator.io_tritonmodels.yaml"): _yaml(crd.definition()),
        Path("manifests/rbac/operator.yaml"): _yaml(*rbac.manifests()),
        Path("manifests/rbac/roles.yaml"): _yaml(*rbac.roles()),
        Path("manifests/namespaced/role.yaml"): _yaml(*rbac.namespaced()),
        Path("docs/permissions.md"): permissions_page.text(),
        **{Path(f"manifests/policies/{name}.yaml"): _yaml(*both) for name, both in policies.manifests().items()},
        **{DASHBOARDS / f"{d.name}.json": grafana.text(d) for d in dashboards.ALL},
        DASHBOARDS / "kustomization.yaml": _yaml(grafana.kustomization(dashboards.ALL)),
        Path("docs/dashboards.md"): page.text(dashboards.ALL),
        Path("docs/validate.md"): validate_page.text(),
        Path("docs/bare-machine.md"): world_page.text(),
    }


class _Dumper(PlainDumper):
    """A YAML dumper that writes multi-line strings as block scalars."""

    def represent_lines(self, data: str) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_lines)


def _yaml(*documents: object) -> str:
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return HEADER + text


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
