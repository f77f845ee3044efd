"""The operator knows from the flags of a real Triton whether it can read and change its models."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from model_images import support
from server.test_load_models import Published
from server.test_model_control import Site
from triton_operator.api.server_access import closes_changes, closes_index
from triton_operator.api.servers import Change, ChangeOutcome
from triton_operator.probe import fetch, model_control
from triton_operator.probe.fetch import UnusableError
from triton_operator.probe.triton import repository_index

pytestmark = pytest.mark.server

ALL = "model-repository,model-config,shared-memory,statistics,trace"


@dataclass(frozen=True)
class Reached:
    """How a server refuses the operator its list of models ("": not at all), and how a change of them ends."""

    refusal: str
    change: ChangeOutcome


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes a repository, and a certificate beside the models."""
    root = tmp_path_factory.mktemp("repository")
    root.parent.chmod(0o755)
    root.chmod(0o755)
    for name in ("echo", "other"):
        Site(None, root).write(name, "v1")  # type: ignore[arg-type]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", "echo/tls.key", "-out", "echo/tls.crt"], cwd=root, check=True, capture_output=True,
    )  # fmt: skip
    (root / "echo" / "tls.key").chmod(0o644)
    return root


def reach(root: Path, arguments: list[str]) -> Reached:
    options = ["--model-control-mode=explicit", "--load-model=echo", *arguments]

    async def main(server: Published) -> Reached:
        client = fetch.HttpClient()
        try:
            await repository_index(client, server.address)
            refusal = ""
        except UnusableError as error:
            refusal = str(error)
        change = Change(("other",), ("echo",), ("other",), 20)
        return Reached(refusal, await model_control.make(client, server, change))

    with support.serving(root, options=options) as running:
        return asyncio.run(main(Published("uid", "pod", "", (0, True), running)))


@pytest.mark.parametrize("arguments", [
    [f"--http-restricted-api={ALL}:admin-key=abc", f"--grpc-restricted-protocol={ALL}:admin-key=abc"],
    ["--http-res", "trace,model-repository:key=x"],
    ["--http-restricted-api=model-config:key=x"],
    ["--http-restricted-api=statistics,inference:key=x", "--grpc-restricted-protocol=inference,model-config:key=x"],
    ["--grpc-rest=model-repository:key=x"],
    ["--grpc-use-ssl=true", "--grpc-server-cert=/models/0/echo/tls.crt", "--grpc-server-key=/models/0/echo/tls.key"],
    ["--grpc-use-ssl=off"],
])  # fmt: skip
def test_knows_what_the_flags_close(root: Path, arguments: list[str]) -> None:
    reached = reach(root, arguments)
    assert reached.refusal == ("has the HTTP status 403" if closes_index(arguments) else "")
    assert (reached.change.state == "Done") == (closes_changes(arguments) == ""), reached.change
