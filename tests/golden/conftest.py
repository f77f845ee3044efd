"""Golden files: all rendered objects of some TritonModels, so that a review sees every change of them."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="overwrite the golden files instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # pytest doesn't know the option if it starts in a parent folder; then use the environment variable.
    return bool(request.config.getoption("--update-golden", False) or os.environ.get("UPDATE_GOLDEN"))
