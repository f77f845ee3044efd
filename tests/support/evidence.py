"""Keeps what explains a failed test, in files, before its fixtures remove it. A plugin of pytest.

What a test may need registers a collector while it lives, with `on_failure`. After a failure of the test, in setup,
call or teardown, each collector writes into .cache/failures/TEST, and pytest's report of the failure names the folder.
EVIDENCE_FOLDER names another place than .cache/failures.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from .api import GROUPED, Api, Object, RefusedError

ROOT = Path(os.environ.get("EVIDENCE_FOLDER") or Path(__file__).resolve().parents[2] / ".cache" / "failures")
SECONDS = 60.0
"""The time of one collector. All collectors of a failure have twice this time together."""
SIZE = 2_000_000
"""The largest size of a file in bytes. Of a longer text it has the end."""
_NAME_LENGTH = 150
# The dumper in C takes a tenth of the time.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Folder:
    """The folder of a failed test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> None:
        self._write(name, text.encode()[-SIZE:])

    def copy(self, file: Path, name: str = "") -> None:
        """Copies the end of a file."""
        with file.open("rb") as source:
            source.seek(max(0, file.stat().st_size - SIZE))
            self._write(name or file.name, source.read())

    def run(self, name: str, command: Sequence[str | Path]) -> None:
        """Writes the output of a command."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        self._write(name, result.stdout[-SIZE:])

    def _write(self, name: str, data: bytes) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


Collector = Callable[[Folder], None]


class _Test:
    """The test that runs in this process. Outside a test there is no folder."""

    folder: Folder | None = None
    failed = False
    living: dict[object, tuple[str, Collector]] = {}


@contextlib.contextmanager
def on_failure(name: str, collect: Collector) -> Iterator[None]:
    """Calls `collect` if a test fails while the context lasts, or when an error ends the context.

    `name` says what it is about, for the case that it fails itself.
    """
    key = object()
    _Test.living[key] = name, collect
    try:
        yield
    except (Exception, pytest.fail.Exception):
        # The report of the failure comes after the end of this context. A test that passes deletes the files.
        _collect([(name, collect)])
        raise
    finally:
        del _Test.living[key]


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Calls all collectors when an error ends the context, for checks after the `yield` of a fixture.

    Pytest reports these when the other fixtures have ended.
    """
    try:
        yield
    except Exception:
        _collect(list(_Test.living.values()))
        raise


def of_file(file: Path, name: str = "") -> Collector:
    """Returns a collector of a log."""
    return lambda folder: folder.copy(file, name)


def of_container(name: str) -> Collector:
    """Returns a collector of the log and the state of a container in Docker."""

    def collect(folder: Folder) -> None:
        folder.run(f"{name}.log", ["docker", "logs", "--timestamps", "--tail=20000", name])
        folder.run(f"{name}.json", ["docker", "inspect", name])

    return collect


def of_namespace(api: Api) -> Collector:
    """Returns a collector of the objects, Events and logs in the namespace of `api`."""

    def collect(folder: Folder) -> None:
        _write_objects(api, folder, api.namespace)
        for pod in api.list("Pod"):
            _write_logs(api, pod, folder)

    return collect


def of_pod(api: Api, name: str) -> Collector:
    """Returns a collector of a pod with its logs, for a pod that ends before the namespace does."""

    def collect(folder: Folder) -> None:
        pod = api.get("Pod", name)
        folder.write(f"{api.namespace}/{name}.yaml", yaml.safe_dump(pod, sort_keys=False))
        _write_logs(api, pod, folder)

    return collect


def of_plane(kubeconfig: Path, home: Path) -> Collector:
    """Returns a collector of the logs in the folder `home` of a control plane, and of all its objects and Events."""

    def collect(folder: Folder) -> None:
        for log in home.glob("*.log"):
            folder.copy(log, f"{home.name}/{log.name}")
        if kubeconfig.exists():
            _write_objects(Api.of(kubeconfig).in_namespace("*"), folder, home.name)

    return collect


def of_nodes(api: Api) -> Collector:
    """Returns a collector of the nodes with their conditions, and of their kubelets' logs."""

    def collect(folder: Folder) -> None:
        for node in api.list("Node"):
            name = node["metadata"]["name"]
            folder.write(f"{name}.yaml", yaml.safe_dump(node, sort_keys=False))
            folder.run(f"{name}.kubelet.log", ["docker", "exec", name, "journalctl", "-u", "kubelet", "-n", "5000"])

    return collect


def _write_objects(api: Api, folder: Folder, home: str) -> None:
    """Writes the objects by kind and creation, and the Events by time."""

    def at(event: Object) -> str:
        return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])

    lines = []
    for event in sorted(api.list("Event"), key=at):
        target, times = event["involvedObject"], event.get("count") or (event.get("series") or {}).get("count") or 1
        path = "/".join(str(target.get(key)) for key in ("namespace", "kind", "name"))
        lines.append(f"{at(event)}  {times}x  {event['type']}  {path}  {event['reason']}: {event.get('message')}\n")
    folder.write(f"{home}/events.txt", "".join(lines))
    for kind in GROUPED:
        # Secrets stay secret, and the Events are written already.
        if kind in ("Secret", "Event"):
            continue
        try:
            objects = sorted(api.list(kind), key=lambda obj: obj["metadata"]["creationTimestamp"])
        except RefusedError as error:
            if error.code == 404:  # not every cluster has KEDA
                continue
            raise
        for obj in objects:
            obj["metadata"].pop("managedFields", None)
        if objects:
            documents = ({"kind": kind, **obj} for obj in objects)
            folder.write(f"{home}/{kind}.yaml", yaml.dump_all(documents, Dumper=_DUMPER, sort_keys=False))


def _write_logs(api: Api, pod: Object, folder: Folder) -> None:
    """Writes the current and the previous log of each container."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        for previous in (False, True) if container["restartCount"] else (False,):
            query = f"container={container['name']}&timestamps=true&tailLines=20000" + "&previous=true" * previous
            file = f"{api.namespace}/{name}.{container['name']}{'.previous' if previous else ''}.log"
            try:
                folder.write(file, str(api.request("GET", f"{api.path('Pod', name)}/log?{query}")))
            except RefusedError as error:  # a container that hasn't begun
                folder.write(file, f"no log: {error}\n")


def _collect(collectors: Sequence[tuple[str, Collector]]) -> None:
    """Calls the collectors. Never raises, and doesn't wait longer than 2 * SECONDS."""
    folder, deadline = _Test.folder, time.monotonic() + 2 * SECONDS
    if folder is None:
        return
    for name, collect in collectors:
        problem = [f"{name}: not within the time\n"]

        def run(name: str = name, collect: Collector = collect, problem: list[str] = problem) -> None:
            try:
                collect(folder)
                problem.clear()
            except BaseException as error:
                problem[:] = [f"{name}: {type(error).__name__}: {error}\n"]

        # A thread, because a request may hang.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(max(0.1, min(SECONDS, deadline - time.monotonic())))
        if problem:
            with contextlib.suppress(OSError):
                folder.path.mkdir(parents=True, exist_ok=True)
                with (folder.path / "not-collected.txt").open("a") as file:
                    file.writelines(problem)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes the test's folder, and deletes that of a former run."""
    name = re.sub(r"[^\w.=-]+", "-", item.nodeid.removeprefix("tests/"))[-_NAME_LENGTH:].strip("-")
    _Test.folder, _Test.failed = Folder(ROOT / name), False
    shutil.rmtree(_Test.folder.path, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    folder = _Test.folder
    if report.failed:
        _Test.failed = True
        _collect(list(_Test.living.values()))
        if folder and folder.path.exists():
            report.sections.append(("what the failed test left", str(folder.path)))
    elif call.when == "teardown" and folder and not _Test.failed:
        shutil.rmtree(folder.path, ignore_errors=True)
    return report
