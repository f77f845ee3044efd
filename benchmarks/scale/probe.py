"""Reads a running operator's cost: requests from its and the API server's metrics, memory and CPU from the kernel."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from support.controlplane import ControlPlane
from support.operator_process import Operator

READS = {"GET", "LIST", "WATCH"}
Requests = Counter[tuple[str, str]]
"""The number of requests by verb and resource."""
_OWN = re.compile(r"^triton_operator_api_requests_total\{(.*)\} (\S+)$", re.M)
_SERVERS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.M)


def requests(operator: Operator) -> Requests:
    """Returns the operator's requests, from its metrics, without those for the Lease."""
    return _counted(_OWN.findall(operator.get("/metrics")))


def requests_of_all(plane: ControlPlane) -> Requests:
    """Returns the requests of all clients, from the API server's metrics."""
    return _counted(_SERVERS.findall(plane.api.request("GET", "/metrics")))


def _counted(samples: list[tuple[str, str]]) -> Requests:
    out: Requests = Counter()
    for text, value in samples:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        resource = "/".join(filter(None, (labels["resource"], labels.get("subresource", ""))))
        if resource not in ("leases", "", "discovery", "version"):
            out[labels["verb"].replace("APPLY", "PATCH"), resource] += int(float(value))
    return out


def writes(counted: Requests) -> int:
    return sum(n for (verb, _), n in counted.items() if verb not in READS)


def metric(operator: Operator, pattern: str) -> float:
    """Returns the sum of the samples whose line starts with `pattern`."""
    return sum(map(float, re.findall(rf"^{pattern}\S* (\S+)$", operator.get("/metrics"), re.M)))


def passes(operator: Operator) -> float:
    return metric(operator, "triton_operator_reconciles_total")


@dataclass(frozen=True)
class Usage:
    """CPU seconds since the process started, and its current and peak resident memory."""

    cpu_s: float
    rss_mib: float
    peak_mib: float


def usage(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    rss, peak = (int(re.findall(rf"^{name}:\s+(\d+) kB", status, re.M)[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss, peak)
