"""The real server and the arguments that the check judges."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from corpus.server_args import MISREAD, REFUSED, REFUSED_WITH_TRACING, TAKEN
from hack import server_usage
from model_images.support import SERVER_IMAGE, need_server_image

pytestmark = pytest.mark.server
START = "timeout 30 tritonserver {} --model-repository=/nowhere 2>&1"
HELP = "tritonserver --help 2>&1"


def shell(*commands: str) -> list[str]:
    """Runs commands in a container of the server's image, and returns the output of each."""
    need_server_image()
    script = "\n".join(f"echo '=== command'\n{command}" for command in commands)
    arguments = ["docker", "run", "--rm", "--interactive", "--entrypoint=sh", SERVER_IMAGE]
    result = subprocess.run(arguments, input=script, capture_output=True, text=True, check=False)
    return result.stdout.split("=== command\n")[1:]


def test_the_flags_are_those_of_the_servers_usage() -> None:
    known = json.loads(server_usage.USAGE.read_text())["flags"]
    found = server_usage.flags(shell(HELP)[0])
    assert len(found) > 60
    assert found == {name: {key: known[name][key] for key in ("value", "choices")} for name in found}


def test_the_server_refuses_reads_or_takes_the_arguments() -> None:
    """It writes its usage if it refuses an argument, and doesn't find the repository otherwise."""
    [usage] = shell(HELP)
    traces = REFUSED_WITH_TRACING if "--trace-config" in usage else {}
    refused = [*REFUSED.values(), *traces.values()]
    cases = [*refused, *MISREAD.values(), *TAKEN.values()]
    outputs = shell(*(START.format(shlex.join(arguments)) for arguments in cases))
    assert [case for case, output in zip(cases, outputs, strict=True) if "\nDEPRECATED:\n" in output] == refused
