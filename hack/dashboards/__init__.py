"""Grafana dashboards as code: panels, queries and descriptions.

`generate.py` writes them as JSON into manifests/monitoring/dashboards, and docs/dashboards.md from the same panels.
"""

from __future__ import annotations

from dashboards import end_to_end, modules, operator, resources
from dashboards.parts import Dashboard

ALL: tuple[Dashboard, ...] = (end_to_end.DASHBOARD, modules.DASHBOARD, resources.DASHBOARD, operator.DASHBOARD)
