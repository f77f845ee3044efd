"""What tests start ends with their process, also when that is killed and runs no fixture's end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hack.world import settings
from support.api import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("setpriv") is None, reason="no setpriv: only Linux ends children with their parent"
    ),
]

TESTS = """
import sys
from pathlib import Path
from support import controlplane, prometheus_process

with (
    controlplane.running() as plane,
    prometheus_process.running(Path(sys.argv[1]), [], []) as prometheus,
):
    print(*(program.process.pid for program in plane.programs.values()), prometheus.pid, flush=True)
    input()
"""


def test_a_killed_process_leaves_no_servers(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": ":".join(str(settings.ROOT / path) for path in ("", "tests", "operator")),
           "TMPDIR": str(tmp_path)}  # fmt: skip
    (tmp_path / "prometheus").mkdir()
    tests = subprocess.Popen([sys.executable, "-c", TESTS, tmp_path / "prometheus"], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert tests.stdout is not None
    line = tests.stdout.readline()
    tests.kill()
    tests.communicate()
    pids = [int(pid) for pid in line.split()]
    assert len(pids) == 3, line
    eventually(lambda: not any(map(_runs, pids)), 10, "its children end")


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    # A zombie has ended, and waits for the process that took it over.
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
