"""The table of reasons, and the check that holds it against the code and the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from triton_operator.api import reasons
from triton_operator.api.reasons import TABLE, Reason

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "hack"))

import reasons_page  # noqa: E402

KNOWN = Reason("Known", "a test knows it", ("Ready",))
SOURCE = 'Problem("Known", "words")'


def faults(reason: Reason = KNOWN, source: str = SOURCE, test: str = '"Known"') -> list[str]:
    return list(reasons_page.faults([KNOWN, reason], [SOURCE, source], [test]))


def test_each_reason_is_produced_and_tested() -> None:
    assert reasons_page.main() == 0
    assert faults() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reason": Reason("Deleting", "")}, "Deleting is in the table, and nothing produces it"),
        ({"reason": Reason("Unknown", "", of="KEDA")}, "Unknown is in no test"),
        ({"test": '"Knowns"'}, "Known is in no test"),
        ({"reason": Reason("Known", "", ("Steady",))}, "the condition Steady, which doesn't exist"),
        ({"source": 'Problem("New", "words")'}, "New isn't in the table"),
        ({"source": 'condition(READY, "False", "New", "words")'}, "New isn't in the table"),
        ({"source": 'condition(PROGRESSING, "False", "Known", "words")'}, "Known is a reason of Progressing"),
        ({"source": '_is("False", "Known", "words")'}, "Known is a reason of ThresholdLive"),
        ({"source": 'Verdict("False", "Known", "words")'}, "Known is a reason of AutoscalerActive"),
    ],
)
def test_a_fault_of_the_table_is_found(change: dict[str, object], words: str) -> None:
    found = faults(**change)  # type: ignore[arg-type]
    assert any(words in fault for fault in found), found


def test_the_page_has_each_reason_once_for_its_conditions() -> None:
    lines = list(reasons_page.lines(TABLE))
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(TABLE) == len({(reason.name, reason.on) for reason in TABLE})
    assert all(row in (ROOT / reasons_page.PAGE).read_text() for row in rows)


def test_a_reason_of_another_component_is_as_severe_as_the_condition() -> None:
    of_keda = {status: reasons.severity("OfKEDA", status) for status in ("True", "False", "Unknown")}
    assert of_keda == {"True": "Normal", "False": "Warning", "Unknown": "Warning"}
    assert reasons.severity("Complete", "False") == "Normal"
    assert reasons.severity("ServerFails", "True") == "Warning"
