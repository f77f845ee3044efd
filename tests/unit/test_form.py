"""The form of the code: sizes, and how fields are described."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

OPERATOR = Path(__file__).resolve().parents[2] / "operator"
MAX_CLASS = 200
"""Lines of a class in a package with threads: what one lock protects, and what one thread does, is seen at once."""


def classes(folder: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield f"{path.relative_to(OPERATOR)}: {node.name}", node


def lines(node: ast.ClassDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def described_below(node: ast.ClassDef) -> list[str]:
    """Returns the fields with a text below them."""
    return [
        ast.unparse(field.target)
        for field, text in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    ]


def test_no_class_with_threads_is_long() -> None:
    long = {
        name: lines(node)
        for package in ("runtime", "cluster")
        for name, node in classes(OPERATOR / "triton_operator" / package)
        if lines(node) > MAX_CLASS
    }
    assert long == {}


def test_fields_are_described_in_the_docstring_except_those_of_the_crd() -> None:
    """The CRD's texts are those below the fields; `kubectl explain` shows them."""
    others = {
        name: fields
        for name, node in classes(OPERATOR)
        if (fields := described_below(node)) and "Base" not in map(ast.unparse, node.bases)
    }
    assert others == {}
    assert [name for name, node in classes(OPERATOR) if "Attributes:" in (ast.get_docstring(node) or "")] == []
