"""No regular expression takes more time than the length of its input, times a factor: strangers write the inputs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.controlplane import ROOT

_ANYWHERE = ("search", "sub", "subn", "split", "findall", "finditer")
_AT_BEGIN = ("match", "fullmatch")
_LENGTH = 1000
_LONGEST_TEXT, _LONGEST_PART = 24, 8
_WORDS, _MARKS, _MOST_WORDS = re.compile(r"[A-Za-z]{2,}"), ("", " ", ",", "-", "/"), 5
_FREE_SECONDS = 0.001
"""What takes less for twice the length isn't looked at again: a pattern that is linear takes less than a tenth."""
Run = Callable[[str], object]


def _literals() -> Iterator[tuple[str, str, Run]]:
    """Yields the patterns that are written in a call such as re.search."""
    for file in sorted((ROOT / "operator").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=name), args=[ast.Constant(str() as text), *_]
                ) if name in (*_ANYWHERE, *_AT_BEGIN):
                    pattern = re.compile(text)
                    yield file.stem, text, pattern.search if name in _ANYWHERE else pattern.match


def _values(value: object) -> Iterator[tuple[re.Pattern[str], Run | None]]:
    """Yields the patterns in a value, and what calls them if the value is one of their methods."""
    owner = getattr(value, "__self__", value)
    if isinstance(owner, re.Pattern) and isinstance(owner.pattern, str):
        yield owner, value if callable(value) else None
    elif isinstance(value, dict):
        yield from _values([*value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _values(item)


def _compiled() -> Iterator[tuple[str, str, Run]]:
    """Yields the patterns in the modules, also those that are put together from others."""
    for package in ("triton_repository_check", "triton_operator", "kubectl_triton"):
        for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            module = importlib.import_module(info.name)
            text = Path(str(module.__file__)).read_text()
            for name, value in vars(module).items():
                if f"\n{name} =" not in text and f"\n{name}: " not in text:
                    continue  # it is from another module
                # Without the name of a pattern that is an item of something, any such call counts.
                own = name if isinstance(value, re.Pattern) else ""
                anywhere = any(f"{own}.{function}" in text for function in _ANYWHERE)
                at_begin = any(f"{own}.{function}" in text for function in _AT_BEGIN)
                for pattern, run in _values(value):
                    run = run or (pattern.match if at_begin and not anywhere else pattern.search)
                    yield module.__name__, pattern.pattern, run


PATTERNS = {f"{module.rpartition('.')[2]}: {text}": (text, run) for module, text, run in (*_literals(), *_compiled())}


def seconds(run: Run, text: str) -> float:
    begin = time.process_time()
    run(text)
    return time.process_time() - begin


def attacks(text: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yields the beginning of a text that matches, and what may follow it: a part of it, or a word of the pattern."""
    words = [word + mark for word in _WORDS.findall(pattern)[:_MOST_WORDS] for mark in _MARKS]
    for begin in range(len(text)):
        for end in range(begin + 1, min(begin + _LONGEST_PART, len(text)) + 1):
            yield text[:begin], text[begin:end]
        for word in words:
            yield text[:begin], word


def attack(begin: str, part: str, length: int) -> str:
    """Returns a text that repeats a part, and ends with what doesn't match."""
    return begin + part * (length // len(part)) + "\x00"


@pytest.mark.parametrize("name", PATTERNS)
def test_twice_the_input_takes_twice_the_time(name: str) -> None:
    pattern, run = PATTERNS[name]

    @settings(max_examples=5, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=[*HealthCheck])  # fmt: skip
    @given(st.from_regex(pattern))
    def check(text: str) -> None:
        for begin, part in attacks(text[:_LONGEST_TEXT], pattern):
            if seconds(run, attack(begin, part, 2 * _LENGTH)) > _FREE_SECONDS:
                short, long = (
                    min(seconds(run, attack(begin, part, n)) for _ in range(3)) for n in (_LENGTH, 2 * _LENGTH)
                )
                assert long < 3 * short, f"{short:.4f} s, and {long:.4f} s for twice of {begin!r} and {part!r}"

    check()
