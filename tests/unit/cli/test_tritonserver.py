"""Parses the log of a real tritonserver, and computes its flags and limits."""

from __future__ import annotations

import contextlib
import http.server
import threading

import pytest

from kubectl_triton.validate import in_docker
from kubectl_triton.validate.in_docker import DockerError, limits, started
from kubectl_triton.validate.tritonserver import Refusal, Start, findings, flags, refusals
from support.growth import assert_linear
from triton_repository_check.expected import Expected
from triton_repository_check.server_flags import parse

HEAD = 'I1121 16:32:49.078382 1 model_lifecycle.cc:472] "loading: pre:1"\n'


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "[libprotobuf ERROR /tmp/text_format.cc:337] Error parsing text-format inference.ModelConfig: "
            "1:17: Expected integer, got: x\n"
            "E1121 16:32:56.849972 1 model_repository_manager.cc:1460] \"Poll failed for model directory 'post': "
            'failed to read text proto from /models/post/config.pbtxt"',
            [Refusal("post", "failed to read text proto from /models/post/config.pbtxt: 1:17: Expected integer, got: x",
                     early=True)],
        ),
        (
            HEAD + "E1121 16:32:50.932273 1 model_lifecycle.cc:642] \"failed to load 'pre' version 1: Internal: "
            "AttributeError: module '1.model' has no attribute 'TritonPythonModel'\"\n"
            "I1121 16:32:50.932313 1 model_lifecycle.cc:777] \"failed to load 'pre'\"\n"
            "E1121 16:32:53.125761 1 model_repository_manager.cc:703] \"Invalid argument: ensemble 'detect' depends on "
            "'pre' which has no loaded version. Model 'pre' loading failed with error: version 1 is at UNAVAILABLE\"",
            [Refusal("pre", "Internal: AttributeError: module '1.model' has no attribute 'TritonPythonModel'",
                     early=False)],
        ),
        (
            "E1121 16:32:56.850425 1 model_repository_manager.cc:724] \"failed to load model 'pre': at least one "
            "version must be available under the version policy of model 'pre'\"",
            [Refusal("pre", "at least one version must be available under the version policy of model 'pre'",
                     early=True)],
        ),
        (
            HEAD + 'E1121 16:32:56.850221 1 model_repository_manager.cc:703] "Invalid argument: in ensemble detect, '
            'ensemble tensor boxes: inconsistent shape: [-1,32,6] is inferred from model net while [-1,-1,5]"',
            [Refusal("detect", "in ensemble detect, ensemble tensor boxes: inconsistent shape: [-1,32,6] is inferred "
                     "from model net while [-1,-1,5]", early=False)],
        ),
        (
            'E1121 16:32:56.850221 1 model_repository_manager.cc:703] "Invalid argument: ensemble detect contains '
            'models that are not available or ambiguous: network"',
            [Refusal("detect", "ensemble detect contains models that are not available or ambiguous: network",
                     early=True)],
        ),
        (
            "E1129 20:24:58.765892 1 model_repository_manager.cc:1415] \"failed to poll model 'postprocess': model not "
            'found in any model repository."\n'
            + HEAD + 'E1129 20:25:00.243453 1 tritonserver.cc:2607] "Internal: failed to load all models"',
            [Refusal("", "failed to poll model 'postprocess': model not found in any model repository.", early=False)],
        ),
        (
            'E1129 20:25:00.243453 1 tritonserver.cc:2607] "Internal: failed to load all models"',
            [Refusal("", "failed to load all models", early=True)],
        ),
        ("I1121 16:32:49.078382 1 server.cc:604] all is well", []),
    ],
)  # fmt: skip
def test_finds_refused_models_in_the_log(log, expected):
    assert list(refusals(log)) == expected


class TestFindings:
    def test_ready_server_has_no_findings(self):
        assert findings(Start(True, False, (), ""), ["pre"], "image") == ()

    def test_reports_refused_models(self):
        start = Start(False, True, (Refusal("pre", "why", early=True), Refusal("gone", "so", early=True)), "")
        assert [str(f).split(" — ")[0] for f in findings(start, ["pre"], "image")] == [
            "pre: error TR901: tritonserver rejects 'pre': why",
            ".: error TR901: tritonserver rejects 'gone': so",
        ]

    def test_names_the_line_of_the_program_that_the_server_names(self):
        log = (
            HEAD + "E1121 16:32:50.932273 1 model_lifecycle.cc:642] \"failed to load 'pre' version 1: Internal: "
            "ValueError: bad\\n\\nAt:\\n  /usr/lib/python3/json.py(3): loads\\n"
            '  /models/pre/1/model.py(7): initialize\\n"'
        )
        (finding,) = findings(Start(False, False, refusals(log), log), ["pre"], "image")
        assert str(finding) == (
            "pre/1/model.py:7: error TR901: tritonserver rejects 'pre': Internal: ValueError: bad — correct this line"
        )

    @pytest.mark.parametrize(("ended", "words"), [(True, "exited"), (False, "isn't ready after 5 s")])
    def test_reports_a_server_that_is_neither_ready_nor_refused(self, ended, words):
        (finding,) = findings(Start(False, ended, (), "first\nlast words\n\n"), [], "image", 5)
        assert (finding.code, finding.file) == ("TR902", ".")
        assert finding.message == f"tritonserver {words}; last line of its log: last words"


def test_gets_the_same_flags_and_limits_as_in_the_pod():
    arguments = [
        "--cache-config=redis,password=secret",
        "--model-config-name=edge",
        "--backend-config=python,shm-default-byte-size=9",
        "--backend-config=python,stub-timeout-seconds=9",
        "--rate-limit=execution_count",
        "--rate-limit-resource=turn:2:0",
        "--strict-model-config=true",
        "--log-info=false",
    ]
    expected = Expected(load_models=("a", "b"), flags=parse(arguments), cpus=1.5, shared_memory=2**20)
    assert limits(expected) == ["--shm-size=1048576", "--cpus=1.5"]
    assert flags(expected) == [
        "--disable-auto-complete-config",
        "--model-config-name=edge",
        "--cache-config=local,size=1048576",
        "--backend-config=python,shm-default-byte-size=9",
        "--rate-limit=execution_count",
        "--rate-limit-resource=turn:2",
        "--load-model=a",
        "--load-model=b",
    ]
    assert flags(Expected()) == ["--load-model=*"]
    assert limits(Expected()) == ["--shm-size=1073741824"]


DOCKER = """\
#!/bin/sh
echo "$@" >>"$LOG"
case "$*" in
  *--gpus=2*) printf 'docker: %s\\n\\n%s\\n' "$WORDS" "Run 'docker run --help' for more information" >&2; exit 125 ;;
  inspect*) echo '[false, {}]' ;;
esac
"""
"""Docker on a machine without GPUs, whose server exits at once."""


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ('Error response from daemon: could not select device driver "" with capabilities: [[gpu]]', True),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1", True),
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", True),
        ("Error response from daemon: No such image: tritonserver:24.10", False),
    ],
)
def test_without_gpus_the_server_runs_on_the_cpu(tmp_path, monkeypatch, capsys, words, runs):
    for name, value in {"LOG": str(tmp_path / "log"), "WORDS": words}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    fails = contextlib.nullcontext() if runs else pytest.raises(DockerError, match="No such image")
    with fails, started(tmp_path, Expected(gpus=2)) as start:
        assert start.ended
    assert ("runs the server without GPUs, because Docker has none: " in capsys.readouterr().err) is runs
    commands = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert ["--gpus=2" in command for command in commands if command[0] == "run"] == ([True, False] if runs else [True])
    assert [commands[1][0], commands[-1][0]] == ["rm", "rm"], "the container that wasn't started stays"


def test_a_line_of_twice_the_length_takes_twice_the_time() -> None:
    def read(log: str) -> None:
        assert [refusal.model for refusal in refusals(log)] == ["x"]

    begin = "Invalid argument: ensemble 'x', depends on '"
    assert_linear(lambda size: (begin + "depends on '" * size + "\n") * 2, read, 20_000)


def test_reads_only_the_beginning_of_an_endless_log(tmp_path, monkeypatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec yes\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(in_docker, "MAX_LOG", 10_000)
    assert in_docker.logs("name") == "y\n" * 5000


@pytest.mark.parametrize(
    ("numpy", "version", "programs", "codes"),
    [
        ("2.1.3", "2.51.0", ["pre"], ["TR903"]),
        ("1.26.4", "2.51.0", ["pre"], []),
        ("2.1.3", "2.51.0", [], []),
        ("2.1.3", "2.60.0", ["pre"], []),
        ("", "2.51.0", ["pre"], []),
    ],
)
def test_numpy_2_is_an_error_for_python_models_of_a_server_that_needs_numpy_1(
    numpy: str, version: str, programs: list[str], codes: list[str]
) -> None:
    log = f"| server_id                        | triton   |\n| server_version                   | {version}   |\n"
    start = Start(True, False, (), log, "127.0.0.1:1", numpy)
    assert [finding.code for finding in findings(start, ["pre"], "triton:1", programs=programs)] == codes


def test_a_view_that_cannot_be_written_is_no_traceback(tmp_path) -> None:
    """Such as of a folder that can't be read, which the check reports, too."""
    (tmp_path / "a").write_text("no folder")
    with (
        pytest.raises(DockerError, match=r"can't write config\.pbtxt with the fields of spec.models"),
        started(tmp_path, Expected(), configs={"a": "text"}),
    ):
        pass


def test_uses_no_proxy_for_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    for name in ("http_proxy", "no_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert in_docker._answers(f"http://127.0.0.1:{server.server_port}/v2/health/ready")
        server.shutdown()
