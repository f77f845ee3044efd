"""Writes a hostile model image, and measures what it costs to validate it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import elsewhere

_PART = 64 << 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Checked:
    """What one validation cost. `ended`: whether it ended before the timeout."""

    rss_mib: float
    seconds: float
    ended: bool


def write(target: Path) -> None:
    """Writes an image with 1 GiB of zeros in one file, 50,000 small files, links to the outside and links in a loop."""
    layers = {"zeros.tar.gz": _zeros(), "files.tar.gz": gzip.compress(_files(), 1)}
    config = json.dumps({"rootfs": {"type": "layers", "diff_ids": []}, "config": {}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["evil:1"], "Layers": list(layers)}]).encode()
    with tarfile.open(target, "w") as tar:
        for name, content in {"manifest.json": manifest, "config.json": config, **layers}.items():
            _add(tar, tarfile.TarInfo(name), content)


def check(target: Path) -> Checked:
    """Runs `kubectl triton validate` on the image, as on the machine of another user."""
    command = [*elsewhere.COMMAND, str(Path(sys.executable).with_name("kubectl-triton")), "validate", str(target)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    timer = threading.Timer(_TIMEOUT_SECONDS, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Checked(usage.ru_maxrss / 1024, time.monotonic() - began, process.returncode >= 0)


@contextlib.contextmanager
def checking(target: Path, costs: list[Checked]) -> Iterator[None]:
    """Validates the image once while the context runs, and adds the cost to `costs`."""
    thread = threading.Thread(target=lambda: costs.append(check(target)))
    thread.start()
    yield
    thread.join()


def _zeros() -> bytes:
    """Returns a layer of about 1 MB that unpacks to 1 GiB. Gzip files may be concatenated."""
    info = tarfile.TarInfo("models/net/1/model.onnx")
    info.size = 16 * _PART
    part = gzip.compress(b"\0" * _PART, 9)
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + part * 16 + gzip.compress(b"\0" * 1024)


def _files() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in range(50_000):
            _add(tar, tarfile.TarInfo(f"models/net-{number}/config.pbtxt"), b"name: 'x'")
        for name, to in (
            ("models/out", "/etc/passwd"), ("models/up", "../../../../etc"), ("models/circle", "circle"),
            ("models/a", "b"), ("models/b", "a"), ("models/mem", "/proc/self/mem"),
        ):  # fmt: skip
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, to
            tar.addfile(link)
    return out.getvalue()


def _add(tar: tarfile.TarFile, info: tarfile.TarInfo, content: bytes) -> None:
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
