"""The container that measures how long requests take, from traces that Triton writes.

docs/decisions/0060-latency-from-traces.md
"""

from __future__ import annotations

from latency_sampler import series
from triton_operator.api import names

from .exporter import Exporter

_FOLDER = "/.triton-operator/traces"
_SERVER = f"http://localhost:{names.PORTS['http']}"


EXPORTER = Exporter(
    is_on=lambda model: model.measures_latency,
    field="latency",
    container=names.CONTAINER_LATENCY,
    port_name=names.LATENCY,
    port=names.LATENCY_PORT,
    series=series.ALL,
    command=("python", "-m", "latency_sampler", _SERVER, _FOLDER, str(names.LATENCY_PORT)),
    resources={"cpu": "100m", "memory": "96Mi"},
    volume="latency-traces",
    folder=_FOLDER,
    # Ten times what the files of one batch take.
    size="16Mi",
    # Triton traces nothing until the container asks for it. It takes the file from a flag only. Each file has the trace
    # of one request, so that it can be read at once.
    flags=(f"--trace-config=triton,file={_FOLDER}/trace", "--trace-config=triton,log-frequency=1"),
    without="measure no latency (remove spec.monitoring.latency)",
)
