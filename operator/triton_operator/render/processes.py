"""The container that exposes what the processes of a server use. processes.sh writes what it reads.

docs/decisions/0063-processes-of-a-server.md
"""

from __future__ import annotations

from process_exporter import series
from triton_operator.api import names

from .exporter import Exporter

_FOLDER = "/.triton-operator/processes"

EXPORTER = Exporter(
    is_on=lambda model: model.shows_processes,
    field="processes",
    container=names.CONTAINER_PROCESSES,
    port_name=names.PROCESSES,
    port=names.PROCESSES_PORT,
    series=series.ALL,
    command=(
        "python",
        "-m",
        "process_exporter",
        f"{_FOLDER}/look",
        *map(str, (names.PROCESSES_PORT, names.PORTS["metrics"])),
    ),
    resources={"cpu": "50m", "memory": "64Mi"},
    volume="process-looks",
    folder=_FOLDER,
    # Twice a look at a thousand processes.
    size="4Mi",
    flags=(),
    without="show no processes (remove spec.monitoring.processes)",
    read_by_operator=True,
)
