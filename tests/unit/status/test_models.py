"""The models of all servers: the status has the worst state and Triton's reason."""

from __future__ import annotations

import pytest

from support import gen
from triton_operator.api.servers import Index, IndexEntry
from triton_operator.pods.served import Expected
from triton_operator.status.models import MAX_MODELS, bounded, load_problem, loaded, merged, model_states


def index(*entries: tuple[str, ...]) -> Index:
    return tuple(IndexEntry(*(e + ("1", "READY", "")[len(e) - 1 :])) for e in entries)


def all_of(*models: str) -> Expected:
    """Returns what servers load that load the whole repository."""
    return Expected(models, everywhere=True)


@pytest.mark.parametrize("reason", ["a" * 10_000, "\x00" * 10_000, "🚦" * 10_000, ""])
def test_many_models_with_long_reasons_fit_into_the_status(reason: str) -> None:
    """The API server's time for each write grows with the size of the status."""
    entries = [
        (f"model-{n}", str(v), "UNAVAILABLE" if reason else "READY", reason) for n in range(200) for v in range(8)
    ]
    states = model_states(gen.NAME, {"p1": index(*entries)}, all_of())
    reported = bounded(states)
    assert len(reported) == 100
    assert sum(len(m.model_dump_json()) for m in reported) < 40_000
    assert all(m.reason for m in reported) == bool(reason)


def test_leaves_out_ready_models_first() -> None:
    many = [(f"{n:03}", str(v), "READY") for n in range(500) for v in range(8)]
    states = model_states(gen.NAME, {"p1": index(*many, ("z", "1", "UNAVAILABLE", "no such file"))}, all_of())
    reported = bounded(states)
    assert len(reported) == 100
    assert (reported[-1].name, reported[-1].reason) == ("z", "no such file")
    assert loaded(states) == "4000/4001"


def test_long_names_fit_into_the_status() -> None:
    states = model_states(gen.NAME, {"p1": index(*(("n" * 1000 + str(n), "1", "READY") for n in range(99)))}, all_of())
    assert 20 < len(bounded(states)) < 40


def test_cuts_a_long_reason() -> None:
    states = bounded(model_states(gen.NAME, {"p1": index(("a", "1", "UNAVAILABLE", "w" * 2000))}, all_of()))
    assert states[0].reason == "w" * 1023 + "…"


def test_counts_the_servers_on_which_a_model_is_ready() -> None:
    states = model_states(gen.NAME, {"p1": index(("a",), ("b",)), "p2": index(("a",), ("b",))}, all_of())
    assert [(m.name, m.version, m.state, m.pods) for m in states] == [("a", "1", "READY", "2/2"),
                                                                      ("b", "1", "READY", "2/2")]  # fmt: skip
    assert loaded(states) == "2/2"
    assert load_problem(states) is None


def test_the_load_time_is_that_of_the_slowest_server() -> None:
    servers = {pod: index(("a",), ("b",), ("c",)) for pod in ("p1", "p2", "p3")}
    times = {"p1": {("a", "1"): 0.0427, ("b", "1"): 9.96}, "p2": {("a", "1"): 1.5171, ("b", "1"): 94.4}}
    states = model_states(gen.NAME, servers, all_of(), load_times={**times, "gone": {("a", "1"): 100.0}})
    assert {m.name: m.load_time for m in states} == {"a": "1.5s", "b": "94s", "c": ""}
    one = model_states(gen.NAME, servers, all_of(), load_times={"p1": times["p1"]})
    assert {m.name: m.load_time for m in one} == {"a": "0.043s", "b": "10s", "c": ""}
    assert [m.load_time for m in merged([states, one])] == ["1.5s", "94s", ""]


def test_reports_the_worst_state_of_all_servers() -> None:
    broken = index(("a", "1", "UNAVAILABLE", "no such file: model.onnx"))
    states = model_states(gen.NAME, {"p1": index(("a",)), "p2": broken}, all_of())
    assert [(m.state, m.pods, m.reason) for m in states] == [("UNAVAILABLE", "1/2", "no such file: model.onnx")]
    problem = load_problem(states)
    assert problem is not None
    assert problem.message == "a: no such file: model.onnx"


@pytest.mark.parametrize("state", ["LOADING", "UNLOADING"])
def test_a_loading_model_is_not_a_problem(state: str) -> None:
    states = model_states(gen.NAME, {"p1": index(("a", "1", state, ""))}, all_of())
    assert load_problem(states) is None
    assert loaded(states) == "0/1"


def test_reports_an_expected_model_that_no_server_lists() -> None:
    states = model_states(gen.NAME, {"p1": index(("a",))}, all_of("a", "b"))
    assert [(m.name, m.state) for m in states] == [("a", "READY"), ("b", "MISSING")]
    assert loaded(states) == "1/2"


def test_reports_a_model_that_one_server_does_not_list() -> None:
    (state,) = model_states(gen.NAME, {"p1": index(("a",)), "p2": ()}, all_of())
    assert (state.state, state.pods) == ("MISSING", "1/2")


def test_a_model_that_a_client_unloaded_is_told_with_the_command_that_loads_it() -> None:
    gone = ("a", "1", "UNAVAILABLE", "unloaded")
    (state,) = model_states(
        "m", {"p1": index(gone, ("b", "1", "UNAVAILABLE", "unloaded")), "p2": index(("a",))}, Expected(["a"])
    )
    assert (state.name, state.version, state.state, state.pods) == ("a", "1", "MISSING", "1/2")
    assert state.reason == "unloaded by a client; load it again: kubectl triton load m a"
    assert not any(m.reason for m in model_states("m", {"p1": index(gone)}, Expected(["a"]), coming=["a"]))


def test_explicit_control_expects_load_models_and_tolerates_others() -> None:
    states = model_states("m", {"p1": index(("a",), ("extra",)), "p2": index(("a",))}, Expected(["a"]))
    assert [(m.name, m.state, m.pods) for m in states] == [("a", "READY", "2/2"), ("extra", "READY", "1/2")]
    (state,) = model_states("m", {"p1": ()}, Expected(["a"]))
    assert (state.name, state.state) == ("a", "MISSING")


def test_reports_no_models_if_no_server_answers() -> None:
    assert model_states(gen.NAME, {}, all_of("a")) == []
    assert loaded([]) == ""


def test_reports_each_version_of_a_model() -> None:
    states = model_states(gen.NAME, {"p1": index(("a", "1", "READY", ""), ("a", "2", "LOADING", ""))}, all_of())
    assert [(m.version, m.state) for m in states] == [("1", "READY"), ("2", "LOADING")]


def test_limit_on_models_keeps_the_expected_ones() -> None:
    indexes = {name: index(*((f"{name}-{n}",) for n in range(MAX_MODELS))) for name in ("a", "b")}
    states = model_states(gen.NAME, indexes, all_of("wanted"))
    assert len(states) == MAX_MODELS
    assert [m.state for m in states if m.name == "wanted"] == ["MISSING"]
    problem = load_problem(states)
    assert problem is not None
    assert problem.message.count(";") == 50
    assert problem.message.endswith("; and 4950 more models")


@pytest.mark.parametrize(
    ("size", "start"),
    [
        ("64Mi", "/dev/shm (64Mi) is full: less than 2Mi is free. Raise spec.server.sharedMemory, or"),
        ("", "/dev/shm is full: less than 2Mi is free. Raise spec.server.sharedMemory, or"),
    ],
)
def test_says_that_shared_memory_is_full(size: str, start: str) -> None:
    """The Python backend advises an option of docker."""
    message = (
        "Unable to initialize shared memory key 'triton_python_backend_shm_region_1' to requested size (2097152 bytes)."
        " If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. "
        "Error: No space left on device"
    )
    (state,) = model_states(gen.NAME, {"p1": index(("a", "1", "UNAVAILABLE", message))}, all_of(), shared_memory=size)
    assert state.reason.startswith(start)
    assert state.reason.endswith(message)
