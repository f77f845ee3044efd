"""Which loaded model differs between two repositories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from triton_operator.in_place.compare import Difference, NewServersError, difference


@pytest.fixture
def repositories(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old", tmp_path / "new"
    for model in ("a", "b"):
        (old / model / "1").mkdir(parents=True)
        (old / model / "config.pbtxt").write_text(f'name: "{model}"')
        (old / model / "1" / "model.py").write_text("x" * 100)
    (old / "shared").mkdir()
    (old / "shared" / "tools.py").write_text("1")
    shutil.copytree(old, new)
    return old, new


def test_no_difference(repositories: tuple[Path, Path]) -> None:
    assert difference(*repositories, {"a", "b"}) == Difference()


def test_one_model_differs_by_the_content_or_the_names_of_its_files(repositories: tuple[Path, Path]) -> None:
    old, new = repositories
    (new / "a" / "1" / "model.py").write_text("y" * 100)
    assert difference(old, new, {"a", "b"}) == Difference("a", 1.0)
    (new / "a" / "1" / "model.py").write_text("x" * 100)
    (new / "a" / "1").rename(new / "a" / "2")
    assert difference(old, new, {"a", "b"}).model == "a"
    (new / "a" / "3").mkdir()
    (new / "a" / "3" / "weights").write_bytes(bytes(1000))
    assert difference(old, new, {"a", "b"}).growth > 9


def test_an_empty_version_counts(repositories: tuple[Path, Path]) -> None:
    old, new = repositories
    (old / "b" / "1" / "model.py").unlink()
    (new / "b" / "1" / "model.py").unlink()
    assert difference(old, new, {"a", "b"}) == Difference()
    (new / "b" / "1").rename(new / "b" / "2")  # the version of an ensemble, which has no files
    assert difference(old, new, {"a", "b"}) == Difference("b", 1.0)


def test_models_that_are_not_loaded_may_differ(repositories: tuple[Path, Path]) -> None:
    old, new = repositories
    shutil.rmtree(new / "b")
    (new / "c").mkdir()
    assert difference(old, new, {"a"}) == Difference()


@pytest.mark.parametrize(("change", "words"), [
    (lambda new: [(new / name / "config.pbtxt").write_text("") for name in "ab"], "2 loaded models differ (a, b)"),
    (lambda new: shutil.rmtree(new / "b"), "doesn't have the loaded model b"),
    (lambda new: (new / "shared" / "tools.py").write_text("2"), "shared differs"),
    (lambda new: shutil.rmtree(new / "shared"), "shared differs"),
])  # fmt: skip
def test_other_differences_need_new_servers(repositories: tuple[Path, Path], change: object, words: str) -> None:
    old, new = repositories
    assert callable(change)
    change(new)
    with pytest.raises(NewServersError) as caught:
        difference(old, new, {"a", "b"})
    assert words in str(caught.value)


def test_a_link_out_of_a_loaded_model_needs_new_servers(repositories: tuple[Path, Path]) -> None:
    old, new = repositories
    for root in (old, new):
        (root / "a" / "1" / "same").symlink_to("model.py")
    assert difference(old, new, {"a"}) == Difference()
    for root in (old, new):
        (root / "a" / "1" / "weights").symlink_to("../../b/1/model.py")
    (new / "b" / "1" / "model.py").write_text("z" * 100)
    with pytest.raises(NewServersError, match="a/1/weights is a link out of the model a"):
        difference(old, new, {"a"})
    assert difference(old, new, {"b"}).model == "b"
    for root in (old, new):
        (root / "a" / "1" / "weights").unlink()
        (root / "a" / "1" / "weights").symlink_to("weights")
    with pytest.raises(NewServersError, match="a/1/weights is a link"):
        difference(old, new, {"a"})
    (old / "c").symlink_to("b")
    (new / "c").symlink_to("b")
    with pytest.raises(NewServersError, match="c is a link out of the model c"):
        difference(old, new, {"b", "c"})
