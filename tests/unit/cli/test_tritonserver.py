"""Parses the log of a real tritonserver, and computes its flags and limits."""

from __future__ import annotations

import pytest

from triton_operator.cli.tritonserver import Refusal, Start, findings, flags, limits, refusals
from triton_operator.repository.checks import Expected

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

    @pytest.mark.parametrize(("ended", "words"), [(True, "exited"), (False, "isn't ready after 5 s")])
    def test_reports_a_server_that_is_neither_ready_nor_refused(self, ended, words):
        (finding,) = findings(Start(False, ended, (), "first\nlast words\n\n"), [], "image", 5)
        assert (finding.code, finding.file) == ("TR902", ".")
        assert finding.message == f"tritonserver {words}; last line of its log: last words"


def test_gets_the_same_flags_and_limits_as_in_the_pod():
    wanted = Expected(load_models=("a", "b"), response_cache=True, cpus=1.5, shared_memory=2**20)
    assert limits(wanted) == ["--shm-size=1048576", "--cpus=1.5"]
    assert flags(wanted) == [
        "--cache-config=local,size=1048576",
        "--model-control-mode=explicit",
        "--load-model=a",
        "--load-model=b",
    ]
    assert flags(Expected()) == limits(Expected()) == []
