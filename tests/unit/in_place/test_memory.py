"""Whether both versions of a model fit into the memory of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from triton_operator.in_place.memory import Memory, read, scarce, shortage

MIB = 1 << 20


def version2(folder: Path, **files: object) -> Path:
    found = {
        "memory.current": 300 * MIB,
        "memory.max": 900 * MIB,
        "memory.stat": f"anon 1\ninactive_file {100 * MIB}\n",
    }
    for name, text in {**found, **files}.items():
        (folder / name.replace("_", ".")).write_text(f"{text}\n")
    return folder


def test_reads_both_versions_of_cgroups(tmp_path: Path) -> None:
    assert read(version2(tmp_path)) == Memory(200 * MIB, 900 * MIB)
    first = tmp_path / "memory"
    first.mkdir()
    (first / "memory.usage_in_bytes").write_text(f"{300 * MIB}\n")
    (first / "memory.limit_in_bytes").write_text(f"{900 * MIB}\n")
    (first / "memory.stat").write_text(f"inactive_file 0\ntotal_inactive_file {50 * MIB}\n")
    assert read(tmp_path) == Memory(250 * MIB, 900 * MIB)
    (first / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read(tmp_path) is None, "no limit"


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    assert read(tmp_path / ("x" * 300)) is None, "a path that can't be followed, e.g. of a server of another user"
    assert read(version2(tmp_path, memory_max="max")) is None
    assert read(version2(tmp_path, memory_current="?")) is None
    assert "can't be read" in shortage(None, 1.0)


def test_the_server_must_fit_twice_and_the_program_once() -> None:
    assert not shortage(Memory(200 * MIB, 496 * MIB), 1.0)
    assert not shortage(Memory(200 * MIB, 496 * MIB), 0.1)
    words = shortage(Memory(200 * MIB, 495 * MIB), 0.1)
    assert "may need 200 MiB and the change itself 96 MiB" in words
    assert "uses 200 MiB of its limit of 495 MiB" in words
    assert "may need 300 MiB" in shortage(Memory(200 * MIB, 496 * MIB), 1.5)
    assert "may need 64 MiB" in shortage(Memory(10 * MIB, 169 * MIB), 1.0), "a small server"


def test_the_program_must_fit_before_it_begins() -> None:
    assert "needs 96 MiB: the server uses 450 MiB of its limit of 512 MiB" in scarce(Memory(450 * MIB, 512 * MIB))
    assert not scarce(Memory(416 * MIB, 512 * MIB))
    assert not scarce(None), "a change that loads no model needs no limit"


def test_the_program_imports_little_before_it_knows_that_it_fits() -> None:
    code = "import sys, triton_operator.in_place.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "aiohttp", "pydantic", "google.protobuf", "grpc"} & set(done.stdout.split())
