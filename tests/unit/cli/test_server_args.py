"""Arguments of tritonserver that it refuses, or of which it reads only a part."""

from __future__ import annotations

import pytest

from corpus.server_args import MISREAD, REFUSED, REFUSED_WITH_TRACING, TAKEN
from kubectl_triton.validate import server_args
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.versions import Version

EACH = [
    *(pytest.param(arguments, {"TR519"}, id=name) for name, arguments in (REFUSED | REFUSED_WITH_TRACING).items()),
    *(pytest.param(arguments, {"TR520"}, id=name) for name, arguments in MISREAD.items()),
    *(pytest.param(arguments, set(), id=name) for name, arguments in TAKEN.items()),
]


def told(arguments: list[str], server: Version | None = (2, 51)) -> list[Finding]:
    return list(server_args.findings(arguments, [f"spec.server.args[{index}]" for index in range(9)], server))


@pytest.mark.parametrize(("arguments", "codes"), EACH)
def test_finds_what_tritonserver_refuses_or_misreads(arguments: list[str], codes: set[str]) -> None:
    """tests/corpus/test_server_args.py runs the same arguments."""
    found = told(arguments)
    assert {finding.code for finding in found} == codes
    assert all(finding.in_spec and not finding.model for finding in found)
    severities = {"TR519": Severity.ERROR, "TR520": Severity.WARNING}
    assert all(finding.severity is severities[finding.code] and finding.remedy for finding in found)


def test_names_the_argument_and_what_to_do() -> None:
    found = told(["--log-info", "true", "--http-thread-count", "9s", "--log-level=2", "--rate-limit=execution-count"])
    assert [f"{finding.file}: {finding.message} — {finding.remedy}" for finding in found] == [
        "spec.server.args[2]: Triton reads only 9 of '9s' for --http-thread-count — "
        "write a whole number without a unit",
        "spec.server.args[4]: '--log-level' is no flag of tritonserver — did you mean --log-file?",
        "spec.server.args[5]: 'execution-count' is no value of --rate-limit — did you mean execution_count?",
    ]


@pytest.mark.parametrize(
    "argument",
    ["--cache-config=redis:password=secret", "--http-restricted-api=infer:key=secret", "--host-policy=secret"],
)
def test_shows_no_value_that_may_be_a_password(argument: str) -> None:
    [finding] = told([argument])
    assert "secret" not in finding.message + finding.remedy


@pytest.mark.parametrize(("server", "severities"), [((2, 51), ["warning"]), ((2, 71), []), (None, [])])
def test_warns_of_flags_that_only_newer_servers_have(server: Version | None, severities: list[str]) -> None:
    found = told(["--grpc-infer-thread-count=4"], server)
    assert [str(finding.severity) for finding in found] == severities
    assert all("Triton 2.71 has" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("server", "severity"), [((2, 50), "warning"), ((2, 51), "error"), ((2, 72), "warning"), (None, "error")]
)
def test_only_warns_of_unknown_flags_of_servers_that_it_does_not_know(server: Version | None, severity: str) -> None:
    assert [str(finding.severity) for finding in told(["--log-level=2"], server)] == [severity]


def test_a_value_of_an_unknown_flag_is_no_second_fault() -> None:
    assert len(told(["--log-level", "2"])) == 1
