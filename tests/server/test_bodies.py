"""Large bodies of any Content-Type: libevhtp, Triton's HTTP library, parses a form on the stack of a thread."""

import http.client
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model_images.support import MODEL_IMAGES, Server, docker, serving
from triton_operator.render import start
from triton_operator.render.delivery import BUSYBOX

pytestmark = pytest.mark.server

FORM = "application/x-www-form-urlencoded"
TYPES = (FORM, "application/octet-stream", "application/json", "multipart/form-data; boundary=x", None)
MIB = 1 << 20


@contextmanager
def started(busybox: Path, *limits: str) -> Iterator[Server]:
    """Starts a server that returns its input, with the command of the pods."""
    repository = MODEL_IMAGES / "passthrough" / "repository"
    # The model has three instances, which keep copies of large inputs and outputs in shared memory.
    options = (f"--volume={busybox}:{BUSYBOX}:ro", "--shm-size=2g", *limits)
    with serving(repository, limits=options, command=start.command()) as server:
        yield server


@pytest.fixture(scope="module")
def server(busybox: Path) -> Iterator[Server]:
    with started(busybox) as running:
        yield running


def post(address: str, path: str, body: bytes, content_type: str | None) -> tuple[int, bytes]:
    host, port = address.split(":")
    headers = {"Inference-Header-Content-Length": "0"} | ({"Content-Type": content_type} if content_type else {})
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def echoes(server: Server, size: int, content_type: str | None) -> bool:
    """Returns whether the server returns a body of `size` bytes."""
    body = (bytes(range(1, 64)) * (size // 63 + 1))[:size]
    status, answer = post(server.http, "/v2/models/passthrough/infer", body, content_type)
    assert status == 200, answer[:500]
    return body in answer


def soft_and_hard(server: Server) -> list[str]:
    """Returns the limits of the stack of tritonserver, in bytes."""
    limits = docker("exec", server.container, "cat", "/proc/1/limits")
    return next(line.split()[3:5] for line in limits.splitlines() if line.startswith("Max stack size"))


@pytest.mark.parametrize("content_type", TYPES, ids=str)
@pytest.mark.parametrize("size", [1, 4, 6, 16, 64])
def test_answers_a_large_body_of_any_content_type(server: Server, size: int, content_type: str | None) -> None:
    assert echoes(server, size * MIB, content_type)


def test_a_large_form_to_the_port_of_the_metrics_does_not_end_the_server(server: Server) -> None:
    status, _ = post(server.metrics, "/metrics", b"x" * 64 * MIB, FORM)
    assert status == 405
    assert echoes(server, 4, FORM)


def test_a_server_gets_the_hard_limit_where_that_is_lower(busybox: Path) -> None:
    with started(busybox, f"--ulimit=stack={8 * MIB}:{64 * MIB}") as server:
        assert soft_and_hard(server) == [str(64 * MIB)] * 2
        assert echoes(server, 16 * MIB, FORM)


def test_threads_get_more_than_the_two_megabytes_of_an_unlimited_stack(busybox: Path) -> None:
    with started(busybox, "--ulimit=stack=-1:-1") as server:
        assert soft_and_hard(server) == [str(start.STACK_KIB << 10), "unlimited"]
        assert echoes(server, 6 * MIB, FORM)


def test_without_the_start_through_busybox_a_form_ends_the_server() -> None:
    """Triton's fault, for which the start exists."""
    with serving(MODEL_IMAGES / "passthrough" / "repository", limits=[f"--ulimit=stack={8 * MIB}"]) as server:
        with pytest.raises((http.client.HTTPException, OSError)):
            echoes(server, 6 * MIB, FORM)
        exit_code = subprocess.run(["docker", "wait", server.container], capture_output=True, text=True, check=True)
        assert exit_code.stdout.strip() == "139"
