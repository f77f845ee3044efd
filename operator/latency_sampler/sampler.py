"""Reads the files of traces, and tells Triton how many requests to trace."""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .histograms import Histograms
from .sampling import Pace, Setting, Weights, parse
from .series import MAX_SERIES
from .traces import Times, Trace, read
from .versions import OLDEST, Version, may_trace

_log = logging.getLogger(__name__)

_FILE = re.compile(r"trace\.[0-9]+")
_MAX_BYTES = 1 << 20
_WRITE_SECONDS = 10.0
"""Triton still writes a file that can't be read, but not for longer than this."""
_TIMEOUT = 5.0
_METADATA, _SETTING, _INDEX = "/v2", "/v2/trace/setting", "/v2/repository/index"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Triton is in the same pod, also where the environment names a proxy."""


class Sampler:
    """Adds the traces in `folder` to `histograms`, and asks Triton at `url` for more.

    `max_series`: maximum number of versions of models. `clock`: CLOCK_MONOTONIC, in nanoseconds. `oldest`: a server
    before this version traces nothing.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        max_series: int = MAX_SERIES,
        clock: Callable[[], int] = time.monotonic_ns,
        oldest: Version = OLDEST,
    ) -> None:
        self.histograms = Histograms(max_series)
        self._url, self._folder, self._clock = url.rstrip("/"), folder, clock
        self._oldest, self._server = oldest, ""
        self._pace, self._weights = Pace(), Weights()
        self._models: set[str] | None = set()
        self._looked, self._files = clock(), 0
        self._troubles: dict[str, str] = {}

    def step(self) -> None:
        """Looks at the setting, and reads the files. Logs what doesn't work, and continues."""
        # Before the files, so that a sampler that has just started knows the rate with which they were written.
        self._look()
        self._files += self._read_files()
        self.histograms.works = not self._troubles

    def _read_files(self) -> int:
        """Reads and removes the files. Returns how many there were: each has one client's request."""
        try:
            paths = [path for path in self._folder.iterdir() if _FILE.fullmatch(path.name)]
            read = sum(map(self._read_file, paths))
        except OSError as error:
            self._trouble("files", str(error))
            return 0
        self._trouble("files", "")
        return read

    def _read_file(self, path: Path) -> bool:
        """Reads a file; returns whether Triton has written all of it."""
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        try:
            trace = read(data.decode("utf-8", "replace"))
        except ValueError:
            if time.time() - path.lstat().st_mtime < _WRITE_SECONDS:
                return False
            trace = None
        path.unlink()
        if trace is None:
            self.histograms.unread += 1
        else:
            self._add(trace)
        return True

    def _add(self, trace: Trace) -> None:
        """Adds the requests to models that Triton has. A client can make a trace name any others."""
        if not all(map(self._is_known, trace.times)):
            self._read_models()
        known = [t for t in trace.times if self._is_known(t)]
        self.histograms.unread += len(trace.times) - len(known)
        self.histograms.add(known, self._weights.at(trace.began))

    def _is_known(self, times: Times) -> bool:
        # Without the index, which may need a key, any name that Prometheus can read.
        return times.model.isprintable() if self._models is None else times.model in self._models

    def _read_models(self) -> None:
        try:
            self._models = {str(model["name"]) for model in self._call(_INDEX, {})}
        except (OSError, ValueError, TypeError, KeyError):
            self._models = None

    def _look(self) -> None:
        now = self._clock()
        seconds = max((now - self._looked) / 1e9, 1e-3)
        try:
            self._check_version()
            found = parse(self._call(_SETTING))
            if change := self._pace.look(found, seconds, self._files):
                parse(self._call(_SETTING, change.body()))
                self._changed(change)
        except (OSError, ValueError) as error:
            self._trouble("setting", _words(error))
        else:
            self._trouble("setting", "")
        self._looked, self._files = now, 0

    def _check_version(self) -> None:
        """Raises ValueError if tracing can end this server. Its version stays the same, since the pod has one image."""
        if not self._server:
            metadata = self._call(_METADATA)
            self._server = str(metadata.get("version", "")) if isinstance(metadata, dict) else ""
        if not may_trace(self._server, self._oldest):
            raise ValueError(
                f"tracing can end Triton {self._server!a} under load, so nothing is traced before version "
                f"{'.'.join(map(str, self._oldest))}: set spec.server.image to a newer release, or remove "
                "spec.monitoring.latency"
            )

    def _changed(self, setting: Setting) -> None:
        self._pace.changed(setting)
        self._weights.change(self._clock(), setting.rate)
        self.histograms.rate = setting.rate

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})  # noqa: S310
        with _OPENER.open(request, timeout=_TIMEOUT) as answer:
            return json.loads(answer.read(_MAX_BYTES))

    def _trouble(self, about: str, words: str) -> None:
        """Notes what doesn't work; logs it when it begins, and when everything works again. `words`: "" if it works."""
        if words == self._troubles.get(about, ""):
            return
        if words:
            self._troubles[about] = words
            _log.warning("latency isn't measured: %s", words)
        else:
            del self._troubles[about]
            if not self._troubles:
                _log.info("latency is measured")


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        if error.code == 403:
            return "Triton's API trace or metadata needs a key: remove both from --http-restricted-api in server.args"
        return f"Triton answers {error.code}"
    return str(error)
