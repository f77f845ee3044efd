"""`kubectl triton models`, `config`, `load`, `unload` and `reload`, with fake servers and a fake kubectl."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from kubectl_triton import cluster
from kubectl_triton.main import main
from kubectl_triton.models import triton
from support import clock, gen
from support.fake_triton import FakeTriton, serving
from triton_operator.api.names import ANNOTATION_TEMPLATE
from triton_operator.pods import Pod

EXPLICIT = {"modelControl": "explicit", "loadModels": ["echo"]}
ESCAPE = "\x1b]0;owned\x07\x9b31m"


def config(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


ECHO = config('name: "echo" backend: "python" instance_group [ { count: 2 kind: KIND_CPU } ]')
PIPE = config('name: "pipe" ensemble_scheduling { step [ { model_name: "echo" } ] }')


class Connection:
    """A cluster with one TritonModel and its pods. `allowed`: whether the user may update the TritonModel.

    A pod whose name begins with "old" has an earlier pod template.
    """

    namespace = "vision"

    def __init__(self, server: dict[str, Any], entry: str, pods: list[str], allowed: bool = True, **spec: Any) -> None:
        self._model = {"metadata": {"name": "detection"}, "spec": {"server": server, "entrypoint": entry, **spec}}
        old = gen.put("metadata.annotations", {ANNOTATION_TEMPLATE: "of the previous spec"})
        self._pods = [Pod(gen.pod(*([old] if name.startswith("old") else []), name=name)) for name in pods]
        self.allowed = allowed

    def model(self, name: str) -> Any:
        return self._model

    def pods(self, model: Any) -> list[Any]:
        return self._pods

    def may_update(self, name: str) -> bool:
        return self.allowed


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Returns a function that runs a command with these servers: run([…], a=FakeTriton(…), b="error of kubectl").

    A number is the port of a server.
    """
    with contextlib.ExitStack() as stack:

        def go(
            arguments: list[str],
            *,
            server: dict[str, Any] = EXPLICIT,
            allowed: bool = True,
            entry: str = "echo",
            models: Sequence[Any] = (),
            **servers: FakeTriton | int | str,
        ) -> Result:
            for pod, backend in servers.items():
                if isinstance(backend, FakeTriton | int):
                    port = backend if isinstance(backend, int) else stack.enter_context(serving(backend)).port
                    lines = f"echo 'Forwarding from 127.0.0.1:{port} -> 8001'; exec sleep 600"
                else:
                    lines = f"echo '{backend}' >&2; exit 1"
                (tmp_path / pod).write_text(lines)
            program = tmp_path / "kubectl"
            program.write_text(f"#!/bin/sh\nfor a; do case $a in pod/*) . {tmp_path}/${{a#pod/}};; esac; done\n")
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            monkeypatch.setattr(
                cluster, "connect", lambda *_: Connection(server, entry, list(servers), allowed, models=models)
            )
            return CliRunner().invoke(main, arguments)

        yield go


def echo(**fields: Any) -> FakeTriton:
    fields = {"index": [("echo", "1", "READY", "")], "configs": {"echo": ECHO}, **fields}
    return FakeTriton(**fields)


def test_shows_every_model_on_every_server(run: Run) -> None:
    first = echo(
        index=[("echo", "1", "READY", ""), ("pipe", "1", "READY", ""), ("never", "", "", "")],
        configs={"echo": ECHO, "pipe": PIPE},
        memory={"echo": 3 << 20},
    )
    second = echo(index=[("echo", "1", "UNAVAILABLE", "no such file"), ("pipe", "1", "LOADING", "")])
    result = run(["models", "detection"], a=first, b=second)
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()[:5]] == [
        ["SERVER", "MODEL", "VERSION", "STATE", "INSTANCES", "MEMORY"],
        ["a", "echo", "1", "READY", "2", "3", "MiB"],
        ["a", "pipe", "1", "READY", "-", "-"],
        ["b", "echo", "1", "UNAVAILABLE", "-", "-"],
        ["b", "pipe", "1", "LOADING", "-", "-"],
    ]
    assert "b: echo: no such file" in result.stdout
    assert "never" not in result.stdout
    assert "a: not in spec.server.loadModels, so a restarted server doesn't load it: pipe" in result.stdout
    assert "b: in spec.server.loadModels, but not loaded: echo" in result.stdout


def test_compares_no_list_while_the_servers_are_replaced(run: Run) -> None:
    """Those of the previous spec have another list, which this command can't read."""
    result = run(["models", "detection"], old=echo(index=[("other", "1", "READY", "")]), new=echo())
    assert "the servers are being replaced" in result.stdout
    assert "not in spec.server.loadModels" not in result.stdout
    assert "but not loaded" not in result.stdout


def test_expects_the_steps_of_an_ensemble(run: Run) -> None:
    server = echo(index=[("echo", "1", "READY", ""), ("pipe", "1", "READY", "")], configs={"echo": ECHO, "pipe": PIPE})
    result = run(["models", "detection"], server={**EXPLICIT, "loadModels": ["pipe"]}, a=server)
    assert "loadModels" not in result.stdout


def test_prints_the_configuration_as_text_and_json(run: Run) -> None:
    result = run(["config", "detection", "echo"], a=echo(), b=echo())
    assert result.exit_code == 0, result.output
    assert config(result.stdout) == ECHO
    assert result.stderr == ""
    result = run(["config", "detection", "echo", "-o", "json"], a=echo())
    assert json.loads(result.stdout)["instance_group"] == [{"count": 2, "kind": "KIND_CPU"}]


def test_marks_what_the_spec_sets(run: Run) -> None:
    parameters = "".join(f'parameters {{ key: "{key}" value {{ string_value: "x" }} }}' for key in "ab")
    batching = "dynamic_batching { preferred_batch_size: [ 2, 4 ] default_queue_policy { max_queue_size: 4 } }"
    served = config(f'name: "echo" {parameters} instance_group [ {{ count: 2 }} ] {batching}')
    settings = {
        "instance_group": [{"count": 2}],
        "parameters": {"b": {"string_value": "x"}},
        "dynamic_batching": {"preferred_batch_size": [2, 4]},
    }
    models = [{"name": "other", "config": {"name": ""}}, {"name": "echo", "config": settings}]
    result = run(["config", "detection", "echo"], models=models, a=echo(configs={"echo": served}))
    marked = [line for line in result.stdout.split("\n") if line.endswith("  # spec.models")]
    assert [line.split("  #")[0].strip() for line in marked] == [
        "instance_group {", "preferred_batch_size: 2", "preferred_batch_size: 4", 'string_value: "x"',
    ]  # fmt: skip
    assert 'key: "b"\n  value {\n    string_value: "x"  # spec.models' in result.stdout
    assert config(result.stdout) == served


def test_names_the_servers_whose_configuration_differs(run: Run) -> None:
    other = config('name: "echo" backend: "python" instance_group [ { count: 5 kind: KIND_CPU } ]')
    result = run(["config", "detection", "echo"], a=echo(), b=echo(configs={"echo": other}))
    assert config(result.stdout) == ECHO
    assert "this is the configuration on a; it differs on b" in result.stderr


def test_reports_an_unknown_model_in_tritons_words(run: Run) -> None:
    result = run(["config", "detection", "echoo"], a=echo())
    assert result.exit_code == 1
    assert "a: Request for unknown model: 'echoo' is not found" in result.stderr


def test_loads_on_one_server_after_the_other_with_a_result_for_each(run: Run) -> None:
    servers = {name: echo(delay=0.2) for name in "abc"}
    result = run(["load", "detection", "echo"], **servers)
    assert result.exit_code == 0, result.output
    assert [line.partition(" in ")[0] for line in result.stdout.splitlines()] == [
        "a: loaded echo",
        "b: loaded echo",
        "c: loaded echo",
        "loaded echo on 3 of 3 servers",
    ]
    assert result.stderr.splitlines() == [f"{pod}: loading echo" for pod in "abc"]
    assert all(server.calls == ["load echo"] for server in servers.values())


def test_reload_never_unloads(run: Run) -> None:
    server = echo()
    result = run(["reload", "detection", "echo"], a=server)
    assert result.exit_code == 0, result.output
    # The second load has another configuration, because Triton does nothing if neither it nor the files have changed.
    assert server.calls == ["load echo", "load echo with tritonoperator.io/reloaded"]


def test_reload_refuses_a_model_that_is_not_loaded(run: Run) -> None:
    server = echo(index=[("echo", "1", "UNAVAILABLE", "unloaded")])
    result = run(["reload", "detection", "echo"], a=server)
    assert result.exit_code == 1
    assert "a: echo isn't loaded (state: UNAVAILABLE): use `kubectl triton load`" in result.stderr
    assert server.calls == []


def test_changes_the_other_servers_if_one_fails_and_exits_with_1(run: Run) -> None:
    broken = echo(failures={"echo": "failed to load 'echo': the weights are from Tuesday"})
    good = echo()
    result = run(["load", "detection", "echo"], a=broken, b="error: pods a is gone", c=good)
    assert result.exit_code == 1
    assert "a: failed to load 'echo': the weights are from Tuesday" in result.stderr
    assert "b: pods a is gone" in result.stderr
    assert "c: loaded echo" in result.stdout
    assert "loaded echo on 1 of 3 servers" in result.stdout


def test_says_what_a_restarted_server_loads(run: Run) -> None:
    result = run(["load", "detection", "other"], a=echo())
    assert "other isn't in spec.server.loadModels: a server that starts or restarts doesn't load it" in result.stderr
    server = {**EXPLICIT, "loadModels": ["echo", "other"]}
    both = echo(index=[("echo", "1", "READY", ""), ("other", "1", "READY", "")])
    result = run(["unload", "detection", "other"], server=server, a=both)
    assert "other is in spec.server.loadModels: a server that starts or restarts loads it again" in result.stderr


def test_unloads_the_entrypoint_only_by_force(run: Run) -> None:
    server = echo()
    result = run(["unload", "detection", "echo"], a=server)
    assert result.exit_code == 1
    assert "a: clients call echo, and no server is ready without echo" in result.stderr
    assert server.calls == []
    result = run(["unload", "detection", "echo", "--force"], a=(again := echo()))
    assert result.exit_code == 0, result.output
    assert again.calls == ["unload echo"]


def test_unload_of_a_step_counts_as_unload_of_its_ensemble(run: Run) -> None:
    def server() -> FakeTriton:
        index = [(name, "1", "READY", "") for name in ("echo", "pipe")]
        return echo(index=index, configs={"echo": ECHO, "pipe": PIPE})

    result = run(["unload", "detection", "echo"], entry="pipe", a=(refusing := server()))
    assert result.exit_code == 1
    assert "a: clients call pipe, and no server is ready without echo" in result.stderr
    assert refusing.calls == []
    result = run(["unload", "detection", "echo", "--force"], entry="pipe", a=server())
    assert "a: unloaded echo and pipe in" in result.stdout


def test_unload_refuses_a_model_that_is_not_loaded(run: Run) -> None:
    server = echo()
    result = run(["unload", "detection", "typo"], a=server)
    assert result.exit_code == 1
    assert "a: typo isn't loaded (state: unknown)" in result.stderr
    assert server.calls == []


def test_explains_what_to_do_without_explicit_model_control(run: Run) -> None:
    server = echo()
    result = run(["load", "detection", "echo"], server={}, a=server)
    assert result.exit_code == 1
    assert "set modelControl: explicit and list the models in spec.server.loadModels" in result.output
    assert server.calls == []


def test_names_the_flags_that_close_a_server_to_the_command(run: Run) -> None:
    server = echo()
    result = run(["models", "detection"], server={**EXPLICIT, "args": ["--grpc-use-ssl=true"]}, a=server)
    assert result.exit_code == 1
    assert "speak gRPC with TLS (--grpc-use-ssl in spec.server.args)" in result.output
    restricted = echo(failures={"other": "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"})
    result = run(["load", "detection", "other"], a=restricted)
    assert "remove the API from --grpc-restricted-protocol in spec.server.args" in result.stderr


def test_refuses_a_user_who_may_not_update_the_tritonmodel(run: Run) -> None:
    server = echo()
    result = run(["load", "detection", "echo"], allowed=False, a=server)
    assert result.exit_code == 1
    assert "you may not update the TritonModel detection" in result.output
    assert server.calls == []
    assert run(["models", "detection"], allowed=False, a=echo()).exit_code == 0


def test_names_the_role_that_a_user_lacks(run: Run) -> None:
    error = 'error: pods "a" is forbidden: User "dev" cannot create resource "pods/portforward" in API group ""'
    result = run(["models", "detection"], a=error)
    assert result.exit_code == 1
    assert "ask an administrator to bind the ClusterRole tritonmodel-modelcontrol" in result.stderr


def test_reports_that_no_server_has_started(run: Run) -> None:
    result = run(["models", "detection"])
    assert result.exit_code == 1
    assert "no server of detection has started" in result.output


def test_stops_waiting_for_a_slow_server(run: Run) -> None:
    start = clock.of_an_idle_machine()
    result = run(["load", "detection", "echo", "--timeout=1"], a=echo(delay=20))
    assert result.exit_code == 1
    assert "a: no answer within 1 s" in result.stderr
    assert clock.of_an_idle_machine() - start < 15


def test_removes_terminal_escapes_from_everything_that_servers_say(run: Run) -> None:
    hostile = FakeTriton(
        index=[(f"echo{ESCAPE}", f"1{ESCAPE}", "READY", ""), ("b", "1", f"BAD{ESCAPE}", f"reason{ESCAPE}\nline")],
        configs={"echo": config(f'name: "{ESCAPE}\\177\\033[2J"')},
        failures={"echo": f"no{ESCAPE}"},
    )
    assert config(run(["config", "detection", "echo"], a=hostile).stdout) == hostile.configs["echo"]
    for arguments in (["models"], ["config", "echo"], ["config", "echo", "--output=json"], ["load", "echo"]):
        result = run([arguments[0], "detection", *arguments[1:]], a=hostile)
        assert all(c.isprintable() or c == "\n" for c in result.output), ascii(result.output)
    assert "reason?]0;owned??31m line" in run(["models", "detection"], a=hostile).stdout


def test_limits_the_size_of_an_answer(run: Run) -> None:
    huge = echo(index=[("x", "1", "UNAVAILABLE", "y" * (5 << 20))])
    result = run(["models", "detection"], a=huge, b=echo())
    assert result.exit_code == 1
    assert "a: " in result.stderr
    assert len(result.output) < 10_000
    assert "READY" in result.stdout


def test_limits_the_number_of_models_and_the_length_of_names(run: Run) -> None:
    many = echo(index=[(f"m{n:04}" + "x" * 1000, "1", "UNAVAILABLE", "") for n in range(triton.MAX_ROWS + 7)])
    result = run(["models", "detection"], a=many)
    assert result.stdout.count("UNAVAILABLE") == triton.MAX_ROWS
    assert "a: and 7 more models" in result.stdout
    assert "x" * 300 not in result.stdout


@contextlib.contextmanager
def sending(data: bytes, *, endless: bool = False) -> Iterator[int]:
    """Yields the port of a server that sends `data` to each client, once or without an end, and nothing else."""
    stop = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(data)
                while endless and not stop.is_set():
                    self.request.sendall(data)
                stop.wait(60)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            stop.set()
            server.shutdown()


# An HTTP/2 frame SETTINGS, as the start of a valid connection, and PINGs or the end of a stream that nobody opened.
SETTINGS, PING = b"\0\0\0\x04\0\0\0\0\0", b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)


@pytest.mark.parametrize(
    ("data", "endless"),
    [
        (b"", False),
        (SETTINGS, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n" + b"x" * 4096, True),
        (b"\x1b]0;owned\x07" * 1000, True),
        (SETTINGS + PING * 1000, True),
    ],
    ids=["silent", "silent-http2", "endless-http", "endless-garbage", "endless-pings"],
)
def test_a_server_that_is_no_triton_does_not_delay_or_hide_the_others(
    run: Run, monkeypatch: pytest.MonkeyPatch, data: bytes, endless: bool
) -> None:
    monkeypatch.setattr(triton, "READ_SECONDS", 2.0)
    start, before = clock.of_an_idle_machine(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with sending(data, endless=endless) as port:
        result = run(["models", "detection"], a=port, b=echo())
    assert result.exit_code == 1
    assert "a: " in result.stderr
    assert all(c.isprintable() or c == "\n" for c in result.output)
    assert "READY" in result.stdout
    assert clock.of_an_idle_machine() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
