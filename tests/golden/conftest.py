"""Golden files: all rendered objects of some TritonModels, so that a review sees every change of them."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # The option is unknown where pytest is started on a folder above: there the variable says it.
    return bool(request.config.getoption("--update-golden", False) or os.environ.get("UPDATE_GOLDEN"))
