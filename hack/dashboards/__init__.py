"""The Grafana dashboards as code: panels, queries, descriptions and layout.

`generate.py` writes them as JSON to manifests/monitoring/dashboards, and docs/dashboards.md from the same panels.
"""

from __future__ import annotations

from dashboards import end_to_end, modules, operator, resources
from dashboards.parts import Dashboard

ALL: tuple[Dashboard, ...] = (end_to_end.DASHBOARD, modules.DASHBOARD, resources.DASHBOARD, operator.DASHBOARD)
