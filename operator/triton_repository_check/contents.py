"""Finds out whether a model file can be loaded by its backend, without the backend's library.

Reports only what no version of the library loads, from trials with PyTorch 2.15 and OpenVINO 2024.0 and 2026.4, and
from NVIDIA's sampleEngines.cpp for TensorRT. Reads headers, the directory of a ZIP file, and the text of an OpenVINO
model.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

MAX_DIRECTORY = 4 * 2**20
"""Maximum size in bytes of a ZIP file's directory. The check skips larger ones."""
MAX_JSON = 2**20
"""Maximum size in bytes of a file in JSON. The check skips larger ones."""
TAR_BYTES = 512
"""Size of a tar file's first header, which is its minimum size."""
MAX_XML = 16 * 2**20
"""Maximum size in bytes of an OpenVINO model. The check skips larger ones."""
_END = b"PK\x05\x06"
_END_BYTES = 22 + 2**16
"""Maximum size of the end of a ZIP file's directory, with a comment."""
_PLANS = (b"ftrt", b"ptrt")
"""The first bytes of a TensorRT plan."""
_SCRIPT = re.compile(r"(?:.*/)?constants\.pkl|(?:[^/]*/)?model\.json")
"""The file of a TorchScript archive that PyTorch reads first; model.json is from PyTorch 1.0."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a model file says about itself.

    - `problem`: why the backend can't load the file; empty if it may load it.
    - `sure`: whether the problem is certain.
    - `engine`: the arguments of vLLM's engine.
    """

    problem: str = ""
    remedy: str = ""
    sure: bool = True
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The path or name of the model that vLLM's engine loads; empty without one."""
        return value if isinstance(value := self.engine.get("model"), str) else ""


def read(backend: str, path: str, platform: str, file: IO[bytes], size: int) -> Contents | None:
    """Returns what the model file at `path` contains; None if there is no check for it. Raises OSError."""
    readers: dict[str, Callable[[IO[bytes], int], Contents]] = {
        "tensorrt": _plan,
        "pytorch": _package if platform == "torch_aoti" else _script,
        "openvino": _network,
        "vllm": _engine,
    }
    if backend not in readers or (backend == "openvino" and not path.endswith(".xml")):
        return None
    return readers[backend](file, size)


def saved_model(names: Collection[str]) -> Contents:
    """Returns what a directory of TensorFlow with these files contains."""
    if {"saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"}.intersection(names):
        return Contents()
    return Contents("it has no saved_model.pb", "save the model with tf.saved_model.save(model, path)")


def archive(start: bytes) -> Contents:
    """Returns what the archive with an environment of Python contains, by its first TAR_BYTES."""
    is_tar = len(start) == TAR_BYTES and not start.startswith((b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"))
    if is_tar or start.startswith(b"\x1f\x8b"):
        return Contents()
    return Contents(
        "the environment of Python isn't a tar file, plain or with gzip", "make it with conda-pack or tar czf"
    )


def _engine(file: IO[bytes], size: int) -> Contents:
    """Reads vLLM's model.json, the arguments of its engine."""
    try:
        # As text, because vLLM's backend reads it so: no byte order mark, and no UTF-16.
        document = json.loads(file.read(MAX_JSON).decode()) if size <= MAX_JSON else {}
    except (ValueError, RecursionError) as error:
        return Contents(f"it isn't JSON: {error}", 'write e.g. {"model": "facebook/opt-125m"}')
    if isinstance(document, dict):
        return Contents(engine=document)
    return Contents("it isn't a JSON object", 'write { "model": "…" }')


def _plan(file: IO[bytes], _: int) -> Contents:
    """Reads a TensorRT plan: only its first bytes."""
    start = file.read(64)
    if start.startswith(_PLANS):
        return Contents()
    remedy = "replace it with an engine of trtexec or of TensorRT's builder"
    length = int.from_bytes(start[:4], "little")
    if 0 < length < 2**20 and start[4:6] == b'{"':
        problem = "it starts with JSON metadata of Ultralytics, but TensorRT needs the plan that follows"
        return Contents(problem, f"remove the first {length + 4} bytes")
    if kind := _kind(start):
        return Contents(f"it is {kind}, not a TensorRT plan", remedy)
    return Contents("it doesn't start with ftrt, as TensorRT plans do", remedy, sure=False)


def _kind(start: bytes) -> str:
    """Returns the format of a file that is certainly no TensorRT plan; empty if it is unknown."""
    if start.startswith(b"PK\x03\x04"):
        return "a ZIP file, as from torch.save"
    if start.startswith(b"\x80") and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle"
    if start.startswith(b"\x89HDF\r\n"):
        return "an HDF5 file"
    if start.startswith(b"\x1f\x8b"):
        return "compressed with gzip"
    return "an XML or HTML file" if start.lstrip().startswith(b"<") else ""


def _script(file: IO[bytes], size: int) -> Contents:
    """Reads a TorchScript file: a ZIP file with constants.pkl, or a Flatbuffer."""
    start = file.read(8)
    if start[4:8] == b"PTMF":
        return Contents()
    remedy = "save the model with torch.jit.script(model).save(path) or torch.jit.trace(model, example).save(path)"
    names = _names(file, size)
    if names is None:
        return Contents()
    if not names:
        pickle = start.startswith(b"\x80\x02")
        why = "it is a pickle of torch.save" if pickle else "it is not a ZIP file, or is truncated"
        return Contents(f"{why}, but the backend loads only TorchScript", remedy)
    if any(map(_SCRIPT.fullmatch, names)):
        return Contents()
    if any("/data/aotinductor/" in f"/{name}" for name in names):
        return Contents("it is a package of AOTInductor", 'set platform: "torch_aoti" and rename it to model.pt2')
    what = "a torch.export package" if any(n.endswith("/models/model.json") for n in names) else "a file of torch.save"
    return Contents(f"it is {what}, but the backend loads only TorchScript", remedy)


def _package(file: IO[bytes], size: int) -> Contents:
    """Reads a package of AOTInductor: a ZIP file with data/aotinductor/."""
    names = _names(file, size)
    if names is None or any("/data/aotinductor/" in f"/{name}" for name in names):
        return Contents()
    why = "it has no compiled model" if names else "it is not a ZIP file, or is truncated"
    remedy = "save the model with torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs))"
    return Contents(f"{why}, but platform torch_aoti loads only packages of AOTInductor", remedy)


class _Bounded:
    """A file whose reads are bounded, because zipfile reads the whole directory at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file = file

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(MAX_DIRECTORY + 1 if size < 0 else min(size, MAX_DIRECTORY + 1))
        if len(content) > MAX_DIRECTORY:
            raise zipfile.BadZipFile("the directory is too large")
        return content


def _names(file: IO[bytes], size: int) -> frozenset[str] | None:
    """Returns the names in a ZIP file; no names if the file has no directory, None if that can't be read."""
    file.seek(max(size - _END_BYTES, 0))
    if _END not in file.read(_END_BYTES):
        return frozenset()
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:
            return frozenset(archive.namelist()) or None
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return None


def _network(file: IO[bytes], size: int) -> Contents:
    """Reads an OpenVINO IR file.

    OpenVINO's XML parser accepts text that isn't well-formed, so this only looks for two tags. A file without `<` at
    its start may be of another format, which OpenVINO recognizes by the content.
    """
    content = file.read(MAX_XML + 1) if size <= MAX_XML else b""
    if b"\0" in content or not content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        return Contents()
    remedy = "convert the model again, e.g. with openvino.save_model"
    if b"<net" not in content:
        return Contents("it has no <net>, so it is not an OpenVINO model", remedy)
    return Contents() if b"</net" in content else Contents("it ends before </net>", remedy)
