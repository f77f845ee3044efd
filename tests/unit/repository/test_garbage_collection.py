"""The pause of the garbage garbage_collection."""

from __future__ import annotations

import gc

import pytest

from triton_repository_check import garbage_collection


def test_pauses_the_collector_until_the_end_also_after_an_error() -> None:
    with garbage_collection.paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), garbage_collection.paused():
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_leaves_a_disabled_collector_disabled() -> None:
    gc.disable()
    try:
        with garbage_collection.paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
