"""The settings of the check: each has a field, a flag in the pod, and its value on both sides."""

from __future__ import annotations

from dataclasses import fields

import pytest

from support import gen
from triton_operator.render import expectations
from triton_repository_check import check
from triton_repository_check.expected import OPTIONS, Expected, Option

FULL = Expected(
    "detection", ("a", "b"), gpus=0, cpus=0.5, numpy_threads=2, storage=2**30, health_request="r.json",
    lacks=("onnxruntime",), server=(2, 51),
)  # fmt: skip


def parsed(*arguments: str) -> Expected:
    return check._expected(check._options(["/models", *arguments]))


def test_each_field_has_an_option() -> None:
    assert {option.name for option in OPTIONS} == {part.name for part in fields(Expected)}
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS)


ORDINARY = [option for option in OPTIONS if option.name not in ("flags", "shared_memory")]


@pytest.mark.parametrize("option", ORDINARY, ids=lambda option: option.name)
def test_the_pod_reads_what_is_written(option: Option) -> None:
    value = getattr(FULL, option.name)
    assert value is not None
    assert getattr(parsed(*option.arguments(value)), option.name) == value
    assert option.arguments(getattr(Expected(), option.name)) == []


def test_the_pod_measures_what_is_not_said() -> None:
    measured = parsed()
    assert measured.shared_memory is None or measured.shared_memory > 0
    assert (measured.numpy_threads or 0) > 0
    assert parsed("--shared-memory=1", "--numpy-threads=3").numpy_threads == 3


def test_the_plugin_and_the_pod_expect_the_same() -> None:
    model = gen.model(
        entrypoint="detection",
        healthRequest={"model": "detection", "file": "detection/r.json"},
        server={
            "image": "nvcr.io/nvidia/tritonserver:24.10-py3",
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi", "ephemeral-storage": "2Gi"}},
            "args": ["--model-config-name=edge"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
        },
        modelImage={"reference": "r:1", "delivery": "Copy"},
    )
    own, pod = expectations.expected(model), parsed(*expectations.arguments(model, "Copy"))
    for part in fields(Expected):
        if part.name != "shared_memory":
            assert getattr(own, part.name) == getattr(pod, part.name), part.name


def test_a_limit_of_0_cpus_is_none() -> None:
    model = gen.model(server={"resources": {"limits": {"cpu": "0", "memory": "1Gi"}}})
    assert expectations.expected(model).cpus is None
    assert not [a for a in expectations.arguments(model, "Copy") if a.startswith("--cpus")]


@pytest.mark.parametrize("argument", ["--cpus=0", "--cpus=nan", "--gpus=-1", "--gpus=1.5", "--server-version=new"])
def test_a_wrong_value_is_refused_with_a_sentence(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(argument)
    assert repr(argument.partition("=")[2]) in capsys.readouterr().err
