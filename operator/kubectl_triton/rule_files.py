"""`kubectl triton rules`: rule files and scrape configurations, for a Prometheus without prometheus-operator."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import urllib3
import yaml
from pydantic import ValidationError

from triton_operator.api import names, thresholds
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.api.status import ENFORCED, TritonModelStatus, status_of
from triton_operator.api.thresholds import ENSEMBLE_COEFFICIENT, MAX_QPS, ThresholdKey
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts
from triton_operator.render.facts import Capabilities, Enforced, RenderSettings
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.prometheus_rule import prometheus_rules
from triton_repository_check.text import one_line

from . import options

Object = dict[str, Any]
_HEAD = "# Of the TritonModel {}, written by kubectl triton rules. Changes are lost.\n"
_MOST = 100_000
_RELOAD_SECONDS = 30.0
_OF_PODS = "__meta_kubernetes_pod_"


@dataclass(frozen=True)
class Files:
    """What Prometheus reads about one TritonModel: a file with rules, and one with its scrape configuration."""

    rules: Object
    scrape: Object


def files(raw: Object, settings: RenderSettings) -> Files | None:
    """Returns the files of a live TritonModel; None until its entrypoint is known.

    Raises ValidationError for a spec that can't be read.
    """
    model, status = TritonModel.model_validate(raw), status_of(raw)
    facts = Facts(
        tools_image="",
        replicas=max(status.replicas, 1),
        entrypoint=status.entrypoint if status.entrypoint_type else "",
        ensemble=status.entrypoint_type == "Ensemble",
        decoupled=tuple(status.decoupled),
        thresholds=thresholds.effective_of(raw),
        enforced=_enforced(raw, status),
        settings=settings,
        cluster=Capabilities(monitoring=True),
    )
    groups = [group for rule in prometheus_rules(model, facts) for group in rule["spec"]["groups"]]
    if not groups:
        return None
    # A ruler may have one list for all namespaces.
    named = [{**group, "name": f"{model.namespace}/{group['name']}"} for group in groups]
    return Files({"groups": named}, {"scrape_configs": _scrape_configs(model, pod_monitor(model, facts)["spec"])})


def _enforced(raw: Object, status: TritonModelStatus) -> Enforced | None:
    """Returns the limit above which the Gateway rejects requests, if the status says that it does."""
    known = thresholds.effective_of(raw)
    limit = known.get(ThresholdKey(MAX_QPS.name))
    if limit is None or not any((said.type, said.status) == (ENFORCED, "True") for said in status.conditions):
        return None
    return Enforced(limit / known.get(ThresholdKey(ENSEMBLE_COEFFICIENT.name), 1.0), is_live=True)


def _scrape_configs(model: TritonModel, monitor: Object) -> list[Object]:
    """Returns what prometheus-operator would make of this PodMonitor, one for each endpoint."""
    first, *others = monitor["podMetricsEndpoints"]
    return [
        _scrape_config(model, monitor, model.key, first),
        *(_scrape_config(model, monitor, f"{model.key}/{other['port']}", other) for other in others),
    ]


def _scrape_config(model: TritonModel, monitor: Object, job: str, endpoint: Object) -> Object:
    """Returns the scrape configuration of one endpoint.

    Prometheus shares one list of pods between all scrape configurations with the same `kubernetes_sd_configs`: here one
    for each namespace.
    """
    limits = {_snake(field): monitor[field] for field in monitor if field.endswith("Limit")}
    return {
        "job_name": job,
        "kubernetes_sd_configs": [
            {
                "role": "pod",
                "namespaces": {"names": [model.namespace]},
                "selectors": [{"role": "pod", "label": names.MANAGED_SELECTOR}],
            }
        ],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"],
        "honor_timestamps": endpoint["honorTimestamps"],
        "follow_redirects": endpoint["followRedirects"],
        **limits,
        "relabel_configs": [
            *(
                {"source_labels": [f"{_OF_PODS}{label}"], "regex": re.escape(value), "action": "keep"}
                for label, value in (
                    ("label_tritonoperator_io_model", model.name), ("container_port_name", endpoint["port"]),
                )
            ),
            *(
                {"source_labels": [source], "target_label": label, "action": "replace"}
                for label, source in (
                    ("namespace", "__meta_kubernetes_namespace"), ("pod", f"{_OF_PODS}name"),
                    ("container", f"{_OF_PODS}container_name"),
                )
            ),
            *map(_snakes, endpoint["relabelings"]),
        ],
        "metric_relabel_configs": [*map(_snakes, endpoint["metricRelabelings"])],
    }  # fmt: skip


def _snakes(fields: Mapping[str, Any]) -> Object:
    return {_snake(field): value for field, value in fields.items()}


def _snake(field: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", field)


class Folder:
    """The files in a folder, one for each TritonModel. `namespace`: None for all."""

    def __init__(self, folder: Path, namespace: str | None) -> None:
        self._folder, self._namespace = folder, namespace

    def write(self, wanted: Mapping[str, Object | None]) -> list[str]:
        """Writes the files that differ, and removes those of TritonModels that aren't there any more.

        `wanted`: key of a TritonModel → its file; None to leave that as it is. Returns what has changed.
        Raises OSError.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        changed = []
        for key, content in sorted(wanted.items()):
            path = self._folder / f"{key.replace('/', '_')}.yaml"
            if content is not None and self._put(path, _HEAD.format(key) + _dumped(content)):
                changed.append(f"wrote {path}")
        for path in sorted(self._folder.glob("*.yaml")):
            if (found := self._key(path)) is not None and found not in wanted:
                path.unlink()
                changed.append(f"removed {path}")
        return changed

    def _key(self, path: Path) -> str | None:
        """Returns the TritonModel of a file that this program has written for these namespaces; None for others."""
        key = path.stem.replace("_", "/", 1)
        with contextlib.suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
            if file.readline() == _HEAD.format(key) and self._namespace in (None, key.partition("/")[0]):
                return key
        return None

    def _put(self, path: Path, text: str) -> bool:
        """Writes a file as a whole, because a ruler may read it at any moment. Returns whether it has changed."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            if path.read_text(encoding="utf-8") == text:
                return False
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        return True


def _dumped(content: Object) -> str:
    return str(yaml.dump(content, Dumper=PlainDumper, sort_keys=False, allow_unicode=True))


@click.command("rules")
@click.option("--all-namespaces", "-A", is_flag=True, help="The TritonModels of all namespaces.")
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the rule files, one for each TritonModel; those of deleted TritonModels are removed. Default: all "
    "rules are printed as one file.",
)
@click.option(
    "--scrape-output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for files with scrape configurations (scrape_config_files), in the same way.",
)
@click.option(
    "--every",
    type=click.IntRange(5, 86400),
    metavar="SECONDS",
    help="Read the TritonModels again after so many seconds, and write what has changed, until it is interrupted.",
)
@click.option(
    "--reload",
    metavar="URL",
    help="Prometheus, or a ruler with the same API, that reads the folder. After a change it gets POST URL/-/reload "
    "(Prometheus needs --web.enable-lifecycle).",
)
@click.option(
    "--metrics-job",
    default=names.METRICS_JOB,
    show_default=True,
    help="The label job of the operator's own metrics, which contain the thresholds.",
)
@click.option("--runbooks", default=names.RUNBOOKS, show_default=True, help="Base URL of the runbooks of the alerts.")
@options.cluster
def rules(
    all_namespaces: bool,
    output: Path | None,
    scrape_output: Path | None,
    every: int | None,
    reload: str | None,
    metrics_job: str,
    runbooks: str,
    namespace: str | None,
    context: str | None,
) -> None:
    """Writes the recording rules and alerts of TritonModels as plain rule files.

    For a Prometheus without prometheus-operator, and for others that read the same files: vmalert, Thanos' ruler,
    Mimir, Nightingale and hosted services (docs/plain-prometheus.md).

    A changed threshold needs no new file: the rules read it from the operator's metrics. Exits with 1 if the cluster
    can't be read; with --every it tries again, and the files stay.
    """
    from kubectl_triton import cluster  # the import of the client takes half a second

    if output is None and (scrape_output or every or reload):
        raise click.UsageError("--scrape-output, --every and --reload need --output")
    settings = RenderSettings(metrics_job=metrics_job, runbooks=runbooks.rstrip("/"))
    is_read = True
    try:
        connection = cluster.connect(namespace, context)
        where = None if all_namespaces else connection.namespace
        while True:
            try:
                found = _found(connection.models(where, _MOST), settings)
                if output is None:
                    click.echo(_dumped(_joined(found.values())), nl=False)
                else:
                    changed = Folder(output, where).write({k: one.rules if one else None for k, one in found.items()})
                    if scrape_output is not None:
                        scrapes = {key: one.scrape if one else None for key, one in found.items()}
                        changed += Folder(scrape_output, where).write(scrapes)
                    for words in changed:
                        click.echo(words)
                    is_read = reload is None or (is_read and not changed) or _reload(reload)
            except (cluster.UnreachableError, OSError) as error:
                if not every:
                    raise
                click.echo(one_line(str(error)), err=True)
            if not every:
                break
            time.sleep(every)
    except (cluster.UnreachableError, OSError) as error:
        raise click.ClickException(one_line(str(error))) from None
    if not is_read:
        raise click.ClickException("the files are written, but not read")


def _found(models: Collection[Object], settings: RenderSettings) -> dict[str, Files | None]:
    """Returns the files by the keys of the TritonModels; None for one whose former files remain."""
    found: dict[str, Files | None] = {}
    for raw in models:
        key = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
        if not raw["spec"].get("monitoring", {}).get("enabled", True):
            continue
        try:
            # Until the entrypoint is known, former alerts are better than none.
            found[key] = files(raw, settings)
        except ValidationError as error:
            click.echo(
                one_line(f"{key}: its files stay as they are, because its spec can't be read: {error}"), err=True
            )
            found[key] = None
    return found


def _joined(found: Collection[Files | None]) -> Object:
    return {"groups": [group for one in found if one is not None for group in one.rules["groups"]]}


def _reload(url: str) -> bool:
    """Lets Prometheus read its files; returns whether it has."""
    try:
        answer = urllib3.request("POST", f"{url.rstrip('/')}/-/reload", timeout=_RELOAD_SECONDS, retries=False)
    except urllib3.exceptions.HTTPError as error:
        click.echo(one_line(f"{url} doesn't answer: {error}"), err=True)
        return False
    if answer.status // 100 == 2:
        return True
    words = answer.data[:300].decode(errors="replace")
    click.echo(one_line(f"{url} refuses the files with the HTTP status {answer.status}: {words}"), err=True)
    return False


if __name__ == "__main__":
    # In a pod it runs from the operator's image, which lacks packages of other commands.
    rules()
