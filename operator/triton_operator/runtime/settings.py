"""Settings of the operator, from environment variables."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_operator import engines
from triton_operator.api import names


@dataclass(frozen=True)
class Settings:
    """The settings.

    - `namespaces`: the namespaces to watch; empty means all.
    - `workers`: number of TritonModels that are reconciled at the same time.
    - `resync_seconds`: interval between complete listings.
    - `discovery_seconds`: interval between checks for optional kinds.
    - `progress_seconds`: minimum interval between status updates that only report a step; 0 for none.
    - `collect_seconds`: grace period for Kubernetes' garbage collector after a TritonModel was deleted.
    - `memory_mib`: the container's memory limit.
    - `prometheus_url`: the Prometheus to query; empty means the one that selects the rules.
    - `prometheus_credentials`: the directory with the credentials for that Prometheus; empty means none.
    - `engines`: the settings for engines, by the environment variable.
    - `prometheus_namespaces`: namespaces whose Prometheus resources the operator queries.
    - `metrics_job`: the label `job` of the operator's metrics in Prometheus.
    - `sample_limit`: the maximum number of samples of one scrape of a server.
    - `runbooks`: base URL of the alerts' runbooks.
    - `rate_limit_service`: whether Envoy Gateway has a rate limit service.
    """

    tools_image: str
    namespace: str
    identity: str
    namespaces: tuple[str, ...] = ()
    workers: int = 8
    port: int = 8080
    probe_port: int = 8081
    metrics_seconds: float = 1.0
    resync_seconds: float = 600.0
    discovery_seconds: float = 30.0
    progress_seconds: float = 5.0
    collect_seconds: float = 300.0
    memory_mib: int = 512
    prometheus_url: str = ""
    prometheus_credentials: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)
    prometheus_namespaces: tuple[str, ...] = (names.PROMETHEUS_NAMESPACE,)
    sample_limit: int = names.SAMPLE_LIMIT
    runbooks: str = names.RUNBOOKS
    rate_limit_service: bool = False
    metrics_job: str = names.METRICS_JOB
    log_format: str = "json"
    log_level: str = "INFO"

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Settings:
        """Returns the settings of the environment variables.

        Raises ValueError with the variable's name if one is missing or invalid.
        """
        if not env.get("TOOLS_IMAGE"):
            raise ValueError("TOOLS_IMAGE must name the operator's own image: the pods' init containers run from it")
        return cls(
            tools_image=env["TOOLS_IMAGE"],
            namespace=env.get("POD_NAMESPACE", "triton-operator"),
            # A restarted container is a new candidate for the Lease.
            identity=f"{env.get('POD_NAME', socket.gethostname())}_{os.urandom(4).hex()}",
            namespaces=_list(env, "WATCH_NAMESPACES"),
            workers=_number(env, "WORKERS", 8),
            port=_number(env, "PORT", 8080),
            probe_port=_number(env, "PROBE_PORT", 8081),
            metrics_seconds=float(_number(env, "METRICS_SECONDS", 1, minimum=0)),
            resync_seconds=float(_number(env, "RESYNC_SECONDS", 600)),
            discovery_seconds=float(_number(env, "DISCOVERY_SECONDS", 30)),
            progress_seconds=float(_number(env, "PROGRESS_SECONDS", 5, minimum=0)),
            collect_seconds=float(_number(env, "COLLECT_SECONDS", 300)),
            memory_mib=_number(env, "MEMORY_MIB", 512),
            prometheus_url=_url(env, "PROMETHEUS_URL"),
            prometheus_credentials=env.get("PROMETHEUS_CREDENTIALS", ""),
            engines={s.variable: s.parse(s.variable, env.get(s.variable, "")) for s in engines.SETTINGS},
            prometheus_namespaces=_list(env, "PROMETHEUS_NAMESPACES", names.PROMETHEUS_NAMESPACE),
            sample_limit=_number(env, "SAMPLE_LIMIT", names.SAMPLE_LIMIT, minimum=100),
            runbooks=_url(env, "RUNBOOKS_URL") or names.RUNBOOKS,
            rate_limit_service=_choice(env, "RATE_LIMIT_SERVICE", ("false", "true")) == "true",
            metrics_job=env.get("METRICS_JOB") or names.METRICS_JOB,
            log_format=_choice(env, "LOG_FORMAT", ("json", "plain")),
            log_level=_choice(env, "LOG_LEVEL", ("INFO", "DEBUG", "WARNING", "ERROR")),
        )


def _list(env: Mapping[str, str], name: str, default: str = "") -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(name, default).split(",") if part.strip())


def _number(env: Mapping[str, str], name: str, default: int, minimum: int = 1) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal() or int(text) < minimum:
        raise ValueError(f"{name} must be a whole number above {minimum - 1}, not {text!r}")
    return int(text)


def _url(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if re.search(r"[@?#]", value.partition("//")[2]):
        raise ValueError(
            f"{name} contains @, ? or #, and so perhaps a password or a token, which conditions and autoscalers "
            "would show: mount a Secret, and set PROMETHEUS_CREDENTIALS to its directory (docs/operations.md)"
        )
    if value and not re.match(r"^https?://[^\s/]+", value):
        suffix = "" if "@" in value else f", not {value!r}"
        raise ValueError(f"{name} must be an http or https URL{suffix}")
    return value


def _choice(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = env.get(name) or choices[0]
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value
