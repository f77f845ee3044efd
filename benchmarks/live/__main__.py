"""Measures how models change while the service is under load.

Each module of MODULES measures one way and returns its figures, its conditions, and lines for the reader.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from support import cluster as clusters
from support.machine import machine

from . import commit, reload

MODULES = {"commit": commit, "reload": reload}


def main() -> int:
    parser = argparse.ArgumentParser(prog="live", description=__doc__)
    parser.add_argument(
        "--only",
        default=os.environ.get("ONLY", ",".join(MODULES)),
        help=f"comma-separated parts: {', '.join(MODULES)}",
    )
    names = parser.parse_args().only.split(",")
    cluster = clusters.ensure()
    conditions: dict[str, object] = {
        "machine": machine(),
        "kubernetes": cluster.api.request("GET", "/version")["gitVersion"],
        "operator_image": cluster.operator_image,
        "server_image": cluster.server_image,
    }
    figures: dict[str, object] = {}
    for name in names:
        measured, under = MODULES[name].measure(cluster)
        figures |= measured
        conditions[name] = under
    print(json.dumps({**figures, "conditions": conditions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
