"""Ready names the servers that answer nothing, or don't use their GPUs, and stays True."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support import gen
from triton_operator.api.monitoring import PrometheusAnswer, ServerFault
from triton_operator.api.servers import MemoryGrowth
from triton_operator.api.status import READY
from triton_operator.pods import Pod
from triton_operator.status import faults
from triton_operator.status.conditions import condition, transitions

ANSWERS = condition(READY, "True", "EntrypointAnswers", "a answers")
PODS = [Pod(gen.pod(name=name)) for name in "ab"]


def fails(pod: str, model: str = "step") -> ServerFault:
    return ServerFault(pod, model, hangs=False)


def hangs(pod: str, version: str = "") -> ServerFault:
    return ServerFault(pod, "step", True, version)


CASES: dict[str, tuple[tuple[ServerFault, ...], str, list[str]]] = {
    "one server fails": ((fails("b"),), "ServerFails",
                         ["a answers; on the server b every request to the model step fails; other servers answer"]),
    "one server hangs": ((hangs("b"),), "ServerHangs",
                         ["on the server b the model step executes nothing, and its requests wait", "delete its pod"]),
    "all servers fail": ((fails("a"), fails("b")), "ServerFails",
                         ["a answers; on all servers every request to the model step fails: the model, its input or"]),
    "a version hangs on both": ((hangs("a", "2"), hangs("b", "2")), "ServerHangs",
                                ["on all servers the model step version 2 executes nothing"]),
    "versions hang": ((hangs("a", "1"), hangs("b", "2")), "ServerHangs",
                      ["on the server a the model step version 1", "on the server b the model step version 2"]),
    "many models": (tuple(fails("b", f"m{n}") for n in range(5)), "ServerFails",
                    ["model m0 fails", "model m2 fails", "2 more such models"]),
}  # fmt: skip


@pytest.mark.parametrize(("failing", "reason", "texts"), CASES.values(), ids=CASES.keys())
def test_names_servers_that_answer_nothing(failing: tuple[ServerFault, ...], reason: str, texts: list[str]) -> None:
    ready = faults.with_faults(ANSWERS, PrometheusAnswer(faults=failing), PODS, {}, {})
    assert (ready.status, ready.reason) == ("True", reason), "clients alone never make it False"
    for text in texts:
        assert text in ready.message
    [transition] = transitions([ANSWERS], [ready])
    assert (transition.kind, transition.reason) == ("Warning", reason)
    [back] = transitions([ready], [ANSWERS])
    assert back.kind == "Normal"


@pytest.mark.parametrize(
    "answer", [None, PrometheusAnswer(), PrometheusAnswer(error="no answer"), PrometheusAnswer(faults=(fails("gone"),))]
)
def test_stays_as_it_is_without_a_fault_of_a_ready_server(answer: PrometheusAnswer | None) -> None:
    assert faults.with_faults(ANSWERS, answer, PODS, {}, {}) == ANSWERS


def test_the_only_server_is_not_compared_with_others() -> None:
    ready = faults.with_faults(ANSWERS, PrometheusAnswer(faults=(fails("a"),)), PODS[:1], {}, {})
    assert "on the server a every request to the model step fails: see its log" in ready.message


def with_gpu(name: str, limits: dict[str, str]) -> Pod:
    return Pod(gen.pod(gen.put("spec.containers.0.resources.limits", {"memory": "8Gi", **limits}), name=name))


ONE_GPU = {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("limits", "asks"),
    [
        (ONE_GPU, "1 nvidia.com/gpu"),
        ({"nvidia.com/mig-1g.5gb": "2", "rdma/hca": "1"}, "2 nvidia.com/mig-1g.5gb"),
        ({"nvidia.com/gpu.shared": "1"}, "1 nvidia.com/gpu.shared"),
    ],
)
def test_names_a_server_that_does_not_use_its_gpu(limits: dict[str, str], asks: str) -> None:
    ready = faults.with_faults(ANSWERS, None, [with_gpu("a", limits)], {"a": "net"}, {})
    assert (ready.status, ready.reason) == ("True", "GPUNotUsed")
    assert f"a answers; the server a has {asks} by the limits, but Triton sees no GPU" in ready.message
    assert "runs net on the CPU" in ready.message
    assert "kubectl logs a -c triton" in ready.message
    [transition] = transitions([ANSWERS], [ready])
    assert (transition.kind, transition.reason) == ("Warning", "GPUNotUsed")


@pytest.mark.parametrize("limits", [{}, {"amd.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {"nvidia.com/hostdev": "1"}])
def test_says_nothing_of_servers_without_a_gpu_of_nvidia(limits: dict[str, str]) -> None:
    assert faults.with_faults(ANSWERS, None, [with_gpu("a", limits)], {"a": "net", "gone": "net"}, {}) == ANSWERS


def test_counts_the_servers_that_do_not_use_their_gpus() -> None:
    pods = [with_gpu(name, ONE_GPU) for name in "abcdef"]
    ready = faults.with_faults(ANSWERS, None, pods, dict.fromkeys("bcdef", "net"), {})
    assert "the servers b, c, d and 2 more have 1 nvidia.com/gpu" in ready.message


def test_a_server_that_answers_nothing_is_worse_than_one_on_the_cpu() -> None:
    ready = faults.with_faults(
        ANSWERS, PrometheusAnswer(faults=(fails("a"),)), [with_gpu("a", ONE_GPU)], {"a": "net"}, {}
    )
    assert ready.reason == "ServerFails"
    assert "runs net on the CPU" in ready.message


def at(minute: int) -> MemoryGrowth:
    return MemoryGrowth(datetime(2026, 12, 1, 14, minute, tzinfo=UTC))


def test_names_the_servers_whose_memory_grows_with_their_times() -> None:
    ready = faults.with_faults(ANSWERS, None, PODS, {}, {"b": at(20), "a": at(45), "gone": at(1)})
    assert (ready.status, ready.reason) == ("True", "MemoryGrows")
    assert ready.message.startswith("a answers; memory grows steadily and reaches the limit, at which the kernel ends")
    assert ": b at about 2026-12-01 14:20 UTC, a at about 2026-12-01 14:45 UTC. The dashboard" in ready.message
    [transition] = transitions([ANSWERS], [ready])
    assert (transition.kind, transition.reason) == ("Warning", "MemoryGrows")


def test_says_what_the_operator_does_about_growth() -> None:
    ready = faults.with_faults(ANSWERS, None, PODS, {}, {"b": at(20)}, "all servers are replaced at noon")
    assert ready.message.endswith("shows which process grows; all servers are replaced at noon")


def test_says_nothing_of_the_memory_of_servers_that_are_gone() -> None:
    assert faults.with_faults(ANSWERS, None, PODS, {}, {"gone": at(1)}) == ANSWERS


def test_counts_the_servers_whose_memory_grows() -> None:
    pods = [Pod(gen.pod(name=name)) for name in "abcde"]
    ready = faults.with_faults(ANSWERS, None, pods, {}, dict.fromkeys("abcde", at(20)))
    assert "c at about 2026-12-01 14:20 UTC and 2 more later. " in ready.message


def test_a_server_that_fails_is_more_urgent_than_one_that_grows() -> None:
    ready = faults.with_faults(ANSWERS, PrometheusAnswer(faults=(hangs("a"),)), PODS, {}, {"b": at(20)})
    assert ready.reason == "ServerHangs"
    assert "b at about 2026-12-01 14:20 UTC" in ready.message


def test_growth_stays_until_a_restarted_operator_knows_the_memory() -> None:
    grows = faults.with_faults(ANSWERS, None, PODS, {}, {"b": at(20)})
    assert faults.with_last_growth(ANSWERS, grows, PODS) == grows
    assert faults.with_last_growth(ANSWERS, ANSWERS, PODS) == ANSWERS
    assert faults.with_last_growth(ANSWERS, None, PODS) == ANSWERS
    assert faults.with_last_growth(ANSWERS, grows, PODS[:1]) == ANSWERS, "of servers that are gone"
    for other in (condition(READY, "False", "NotServing", "m"), condition(READY, "True", "ServerFails", "m")):
        assert faults.with_last_growth(other, grows, PODS) == other
