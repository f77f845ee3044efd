"""Parses and compares quantities as Kubernetes does."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from triton_operator.api import quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", "1"), ("500m", "0.5"), ("1.5Gi", "1610612736"), ("2k", "2000"), ("1E", "1e18"), ("1Ei", str(2**60)),
        ("1e3", "1000"), ("1E3", "1000"), ("5e-1", "0.5"), (".5", "0.5"), ("1.", "1"), ("3n", "3e-9"), ("7u", "7e-6"),
        (4, "4"), (0.5, "0.5"), ("0", "0"),
    ],
)  # fmt: skip
def test_parses_quantities(text: str | int | float, amount: str) -> None:
    assert quantity.parse(text) == Decimal(amount)
    assert isinstance(text, float) or re.match(quantity.PATTERN, str(text))


@pytest.mark.parametrize(
    "text", ["1e19", "8Ei", "1e400", "1e9999999", "1e999999999", "1e99999999999999999999", "9" * 32 + "E", 2**70]
)
def test_caps_values_above_the_maximum(text: str | int) -> None:
    """As in Kubernetes. Some of these numbers are too long to write out."""
    assert quantity.parse(text) == 2**63 - 1


@pytest.mark.parametrize("text", ["1e100", "1e-100", "1E+999999999"])
def test_the_schema_refuses_long_exponents(text: str) -> None:
    assert not re.match(quantity.PATTERN, text)


@pytest.mark.parametrize("text", ["0.1n", "1e-10", "1e-999999999", "0.0000000001"])
def test_rounds_small_values_up_to_the_minimum(text: str) -> None:
    assert quantity.parse(text) == Decimal("1e-9")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1\n",
        "١",
        "9" * 5000,
        "1e" + "9" * 5000,
        "abc",
        "1 Gi",
        "1gi",
        "Gi",
        "--1",
        "1e",
        "1KiB",
        "1,5",
        "-1",
        "..",
        "1.2.3",
    ],
)
def test_rejects_text_that_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        quantity.parse(text)
    assert not re.match(quantity.PATTERN.replace("$", r"\Z"), text) or len(text) > 32


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("1000m", 1, True), ("1Gi", "1024Mi", True), ("1", "1000m", True), ("1", "2", False), ("1G", "1Gi", False),
        ("a", "a", False), (None, 1, False), ([], [], False), ("1", {}, False), (True, 1, False), ("..", ".", False),
    ],
)  # fmt: skip
def test_compares_quantities_by_value(left: object, right: object, equal: bool) -> None:
    assert quantity.same(left, right) is equal


@pytest.mark.parametrize(("amount", "text"), [(1, "1Mi"), (1 << 20, "1Mi"), ((1 << 20) + 1, "2Mi"), (0, "0Mi")])
def test_rounds_mebibytes_up(amount: int, text: str) -> None:
    assert quantity.mebibytes(Decimal(amount)) == text
