"""Writes the table of reasons into docs/operations.md, and checks it against the code and the tests.

Prints one line per fault and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import environment

if __name__ == "__main__":
    environment.restart()

from triton_operator.api import status
from triton_operator.api.reasons import TABLE, Reason

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/operations.md")
_PLACE = re.compile(r"(<!-- reasons: made .*? -->\n).*?(<!-- end of reasons -->)", re.DOTALL)
_CALLS = {"Problem": 0, "Verdict": 1, "_is": 1, "condition": 2}
"""What makes a reason: the place of its argument."""
_CONDITIONS = {"Verdict": status.AUTOSCALER_ACTIVE, "_is": status.THRESHOLD_LIVE}
"""What these report on."""


def page(before: str) -> str:
    """Returns the text of the page with the reasons of the table."""
    table = "\n".join(lines(TABLE))
    return _PLACE.sub(lambda place: f"{place[1]}\n{table}\n\n{place[2]}", before)


def lines(reasons: Iterable[Reason]) -> Iterator[str]:
    """Yields the lines of the two tables: the reasons with something to do, and those without."""
    reasons = list(reasons)
    yield "| Reason | In | Meaning | What to do |"
    yield "|---|---|---|---|"
    for reason in (r for r in reasons if r.todo):
        yield f"| `{reason.name}` | {_on(reason)} | {reason.meaning} | {reason.todo} |"
    yield ""
    yield "These need no action:"
    yield ""
    yield "| Reason | In | Meaning |"
    yield "|---|---|---|"
    for reason in (r for r in reasons if not r.todo):
        yield f"| `{reason.name}` | {_on(reason)} | {reason.meaning} |"


def _on(reason: Reason) -> str:
    return ", ".join(f"`{condition}`" for condition in reason.on) or "–"


def faults(reasons: Iterable[Reason], sources: Iterable[str], tests: Iterable[str]) -> Iterator[str]:
    """Yields what is wrong with the table, from the texts of the operator's files and of the tests."""
    reasons = list(reasons)
    trees, tested = [ast.parse(text) for text in sources], "\n".join(tests)
    words = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    for reason in reasons:
        if not reason.of and reason.name not in words:
            yield f"{reason.name} is in the table, and nothing produces it"
        if not re.search(rf"\b{reason.name}\b", tested):
            yield f"{reason.name} is in no test"
        for unknown in set(reason.on) - status.CONDITIONS:
            yield f"{reason.name} names the condition {unknown}, which doesn't exist"
    conditions: dict[str, set[str]] = {}
    for reason in reasons:
        conditions.setdefault(reason.name, set()).update(reason.on)
    for name, condition in {made for tree in trees for made in _made(tree)}:
        if name not in conditions:
            yield f"{name} isn't in the table"
        elif condition and condition not in conditions[name]:
            yield f"{name} is a reason of {condition}, and the table doesn't say it"


def _made(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields each reason that is written where it is made, with the condition that has it, "" if that isn't known."""
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if not isinstance(node, ast.Call) or called not in _CALLS or len(node.args) <= _CALLS[called]:
            continue
        reason = node.args[_CALLS[called]]
        if isinstance(reason, ast.Constant) and reason.value:
            first = node.args[0]
            of_call = getattr(status, first.id, "") if called == "condition" and isinstance(first, ast.Name) else ""
            yield str(reason.value), _CONDITIONS.get(called, of_call)


def _texts(folder: str) -> list[str]:
    return [path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))]


def main() -> int:
    found = sorted(set(faults(TABLE, _texts("operator/triton_operator"), _texts("tests"))))
    for fault in found:
        print(f"operator/triton_operator/api/reasons.toml: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
