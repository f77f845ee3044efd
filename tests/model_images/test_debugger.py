"""`breakpoint()` in a model: with `make serve DEBUG=MODEL` it waits for a client of pdb."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model_images.support import MODEL_IMAGES, need_server_image
from model_images.test_serve import Served
from model_images.test_small_models import template
from support import children, ports

ROOT = MODEL_IMAGES.parent
PROGRAM = """
import serve_debugger

serve_debugger.PORT = {port}
for number in (1, 2):
    breakpoint()
    print("number", number, flush=True)
"""


class Client:
    """A client of pdb, as `nc`."""

    def __init__(self, port: int) -> None:
        """Waits until a breakpoint answers: Docker accepts connections before it does."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                self.first = self.read()
                break
            except (OSError, EOFError):
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def read(self) -> str:
        """Returns what comes before the next prompt. Raises EOFError at the end of the connection."""
        text = b""
        while not text.endswith(b"(Pdb) "):
            part = self.socket.recv(4096)
            if not part:
                raise EOFError(text.decode())
            text += part
        return text.decode()

    def say(self, line: str) -> None:
        self.socket.sendall(f"{line}\n".encode())

    def ask(self, line: str) -> str:
        self.say(line)
        return self.read()

    def end(self, line: str) -> None:
        """Sends the last line of the session."""
        self.say(line)
        assert self.socket.recv(4096) == b""


class Process:
    """A Python process with the arguments of an instance of the model `my_model`."""

    def __init__(self, folder: Path, port: int, debug: str = "my_model") -> None:
        program = folder / "model.py"
        program.write_text(PROGRAM.format(port=port))
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "hack"), "PYTHONBREAKPOINT": "serve_debugger.stop",
            "DEBUG_MODEL": debug, "DEBUG_PORT": str(port),
        }  # fmt: skip
        command = [sys.executable, program, "/models/my_model/1/model.py"]
        self.process = children.start(
            command, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def ended(self) -> str:
        out, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, errors
        return out + errors


def test_stops_and_continues(tmp_path: Path) -> None:
    (port,) = ports.free()
    process = Process(tmp_path, port)
    client = Client(port)
    assert "model.py(7)" in client.first
    assert client.ask("p number").startswith("1\n")
    client.ask("number = 7")
    client.end("continue")
    client = Client(port)
    assert client.ask("p number").startswith("2\n")
    client.end("c\r")  # as telnet
    out = process.ended()
    assert re.findall(r"^number (\d)$", out, re.MULTILINE) == ["7", "2"]
    assert out.count(f"model.py:6 is at a breakpoint: nc 127.0.0.1 {port}\n") == 2


@pytest.mark.parametrize("last", ["q", "break 7\nclose", "close"])
def test_the_end_of_a_session_ends_no_model(last: str, tmp_path: Path) -> None:
    (port,) = ports.free()
    process = Process(tmp_path, port)
    for _ in range(2):
        client = Client(port)
        *lines, end = last.split("\n")
        for line in lines:
            client.ask(line)
        if end == "close":
            client.socket.close()
        else:
            client.end(end)
    assert "number 1\nnumber 2\n" in process.ended()


def test_keeps_the_session_for_breakpoints_of_the_client(tmp_path: Path) -> None:
    (port,) = ports.free()
    process = Process(tmp_path, port)
    client = Client(port)
    client.ask("break 7")
    assert "model.py(7)" in client.ask("c"), "the second breakpoint() uses the same connection"
    client.end("c")
    assert "number 1\nnumber 2\n" in process.ended()


def test_other_instances_wait_for_the_port(tmp_path: Path) -> None:
    (port,) = ports.free()
    first = Process(tmp_path, port)
    client = Client(port)
    second = Process(tmp_path, port)
    assert second.process.stderr
    assert "waits: another instance or thread is at a breakpoint" in second.process.stderr.readline()
    for number in range(4):
        client.end("c")
        if number < 3:
            client = Client(port)
    for process in (first, second):
        assert "number 1\nnumber 2\n" in process.ended()


def test_other_models_do_not_stop(tmp_path: Path) -> None:
    (port,) = ports.free()
    assert Process(tmp_path, port, debug="model").ended() == "number 1\nnumber 2\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a breakpoint in `execute`, and two instances."""
    need_server_image()
    folder = tmp_path_factory.mktemp("debugged")
    _write(folder)
    running = Served(folder, "--debug=my_model")
    try:
        Client(running.port + 3).end("c")  # the warm-up of each instance
        Client(running.port + 3).end("c")
        running.wait_for("serving .* at ")
        yield running
    finally:
        running.stop()


def _write(folder: Path) -> None:
    """Writes the template's repository with a breakpoint, and with two instances."""
    repository = folder / "repository"
    shutil.copytree(MODEL_IMAGES / "template" / "repository", repository)
    for name, old, new in (
        ("1/compute.py", "    return (features", "    breakpoint()\n    return (features"),
        ("config.pbtxt", "count: 1", "count: 2"),
    ):
        file = repository / "my_model" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


@pytest.mark.server
def test_a_model_stops_at_its_breakpoint_and_continues(served: Served) -> None:
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(template.ask, [[1, 0, 0, 0]], served.url)
        client = Client(served.port + 3)
        assert "/models/my_model/1/compute.py" in client.first
        assert client.ask("p features.shape").startswith("(1, 4)")
        client.ask("weights = 5 * weights")
        time.sleep(3)  # Triton looks each second whether the process is well
        assert not answer.done()
        client.end("c")
        assert answer.result(10) == [5]


@pytest.mark.server
def test_a_changed_model_is_loaded_while_the_old_one_is_at_a_breakpoint(served: Served) -> None:
    with ThreadPoolExecutor() as pool:
        at = len(served.log.read_text())
        answer = pool.submit(template.ask, [[1, 0, 0, 0]], served.url)
        client = Client(served.port + 3)
        served.replace("my_model/1/compute.py", "    breakpoint()\n", "")
        served.wait_for("loaded my_model in", at)
        assert template.ask([[2, 0, 0, 0]], served.url) == [2]
        assert not answer.done()
        client.end("c")
        assert answer.result(10) == [1]
