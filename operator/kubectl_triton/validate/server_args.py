"""Finds arguments of tritonserver that it refuses, or of which it reads only a part.

The flags and the forms of their values are those of `tritonserver --help`, in server_usage.json
(hack/server_usage.py). The text of a value is in no message if it may contain a password.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import NamedTuple

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.versions import Version

CODES = {
    "TR519": "tritonserver refuses an argument",
    "TR520": "tritonserver reads only a part of a number",
}

_BOOLEAN = re.compile(r"true|on|1|false|off|0", re.IGNORECASE)
# As std::stoi and std::stod, which ignore spaces before the number, and all that comes after it.
_NUMBERS = {
    "integer": re.compile(r"[+-]?[0-9]+"),
    "float": re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+|inf|nan)", re.IGNORECASE),
}
_PART = re.compile(r"<([a-z_]+)>([^<>]?)")
# Where src/command_line_parser.cc of Triton's server differs from its own usage.
_OTHER_TYPES = {"metrics-interval-ms": "integer", "device_id": "integer", "fraction": "float"}
_ALSO_BOOLEAN = frozenset({"log-verbose"})
_MAY_LACK_FIRST = frozenset({"backend-config", "trace-config"})
_MAY_LACK_LAST = frozenset({"rate-limit-resource"})
_EXACT_CASE = frozenset({"log-format"})
_EXCLUSIVE = ("response-cache-byte-size", "cache-config")
# Settings that a backend or a cache reads with std::stol: src/python_be.cc and src/local_cache.cc.
_SETTINGS = re.compile(r"(python,(?:shm-[a-z-]*byte-size|shm-message-queue-size|thread-pool-size|stub-timeout-seconds)"
                       r"|local,size)=(.*)", re.DOTALL)  # fmt: skip


@dataclass(frozen=True)
class Flag:
    """A flag in tritonserver's usage.

    - `value`: the form of its value, e.g. `<string>,<string>=<string>`; "" for a flag without a value.
    - `choices`: the values, or first parts of values, that it may have; empty if any.
    - `first`: the oldest version in server_usage.json that has it.
    """

    value: str
    choices: tuple[str, ...]
    first: Version


@dataclass(frozen=True)
class Usage:
    """The content of server_usage.json: flags by name without the hyphens, and the versions that it knows, in order."""

    flags: Mapping[str, Flag]
    versions: tuple[Version, ...]

    def knows(self, server: Version | None) -> bool:
        """Whether each flag of this server is certainly here. None: of a version that isn't known."""
        return server is None or self.versions[0] <= server <= self.versions[-1]


class _Given(NamedTuple):
    """A flag with a value on the command line: the flag's index among the arguments, and its name in full."""

    at: int
    name: str
    value: str


class _Fault(NamedTuple):
    """What is wrong with an argument, and what to do."""

    words: str
    remedy: str
    severity: Severity = Severity.ERROR
    code: str = "TR519"


def usage() -> Usage:
    """Returns the content of server_usage.json."""
    content = json.loads(resources.files(__package__).joinpath("server_usage.json").read_text())
    flags = {
        name: Flag(entry["value"], tuple(entry["choices"]), _version(entry["first"]))
        for name, entry in content["flags"].items()
    }
    return Usage(flags, tuple(map(_version, content["versions"])))


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


def findings(arguments: Sequence[str], places: Sequence[str], server: Version | None) -> Iterator[Finding]:
    """Yields TR519 and TR520 for the arguments of a server.

    `places`: where each argument is, e.g. `spec.server.args[0]`. `server`: its version; None if unknown.
    """
    for index, fault in _judged(arguments, usage(), server):
        yield Finding(fault.code, fault.severity, places[index], None, None, fault.words, fault.remedy)


def _judged(arguments: Sequence[str], known: Usage, server: Version | None) -> Iterator[tuple[int, _Fault]]:
    """Yields the faults, each with the index of its argument."""
    given = dict[str, _Given]()
    for part in _parsed(arguments, known, server):
        if not isinstance(part, _Given):
            yield part
            continue
        given[part.name] = part
        first = known.flags[part.name].first
        if server is not None and first > max(server, known.versions[0]):
            words = "Triton {}.{} has --{}, {}.{} may not have it".format(*first, part.name, *server)
            yield part.at, _Fault(words, "remove it, or use a newer server", Severity.WARNING)
        for fault in _faults(part.name, part.value, known.flags):
            yield part.at, fault
    old, new = _EXCLUSIVE
    if old in given and new in given:
        yield given[old].at, _Fault(f"--{old} and --{new} exclude each other", f"remove --{old}")


def _parsed(arguments: Sequence[str], known: Usage, server: Version | None) -> Iterator[_Given | tuple[int, _Fault]]:
    """Yields the flags, and what getopt_long refuses with the index of the argument."""
    flags, index = known.flags, 0
    while index < len(arguments):
        at, argument = index, arguments[index]
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        index += 1
        if not argument.startswith("--") or argument == "--":
            yield at, _Fault(f"{_quoted(argument)} belongs to no flag", "write a flag and its value as --flag=value")
            continue
        written, joined, value = argument.removeprefix("--").partition("=")
        names = [written] if written in flags else [name for name in flags if name.startswith(written)]
        if len(names) != 1:
            yield at, _unknown(written, names, known, server)
            if not joined and following and not following.startswith("--"):
                index += 1  # its value
        elif not flags[names[0]].value:
            if joined:
                yield at, _Fault(f"--{names[0]} takes no value", "remove the value")
        elif joined:
            yield _Given(at, names[0], value)
        elif following is not None:
            yield _Given(at, names[0], following)
            index += 1
        else:
            yield at, _Fault(f"--{names[0]} has no value", f"write --{names[0]}={flags[names[0]].value}")


def _unknown(written: str, names: Sequence[str], known: Usage, server: Version | None) -> _Fault:
    """Returns the fault of a flag that could be each of `names`."""
    if names:
        options = ", ".join(f"--{name}" for name in names[:5])
        return _Fault(f"{_quoted('--' + written)} could be {options}", "write its whole name")
    close = get_close_matches(written, known.flags, 1)
    remedy = f"did you mean --{close[0]}?" if close else "remove it"
    severity = Severity.ERROR if known.knows(server) else Severity.WARNING
    return _Fault(f"{_quoted('--' + written)} is no flag of tritonserver", remedy, severity)


def _faults(name: str, value: str, flags: Mapping[str, Flag]) -> Iterator[_Fault]:
    """Yields the faults of a flag's value."""
    flag = flags[name]
    parts = _PART.findall(flag.value)
    if len(parts) > 1:
        faults = [*_compound(name, value, parts, flag)]
        yield from faults or _setting(name, value, flags)
        return
    kind = _OTHER_TYPES.get(name, parts[0][0])
    if kind == "boolean" and not _BOOLEAN.fullmatch(value):
        yield _Fault(f"{_quoted(value)} for --{name} is not true or false", f"write --{name}=true or --{name}=false")
    elif kind in _NUMBERS and not (name in _ALSO_BOOLEAN and value.lower() in ("true", "false")):
        yield from _number(value, kind, f"--{name}")
    elif flag.choices:
        fold = str if name in _EXACT_CASE else str.lower
        if fold(value) not in map(fold, flag.choices):
            close = get_close_matches(value, flag.choices, 1)
            remedy = f"did you mean {close[0]}?" if close else _one_of(flag.choices)
            yield _Fault(f"{_quoted(value)} is no value of --{name}", remedy)


def _compound(name: str, value: str, parts: Sequence[tuple[str, str]], flag: Flag) -> Iterator[_Fault]:
    """Yields the faults of a value with several parts: type and separator of each. Quotes only numbers."""
    texts = _split(name, value, parts)
    if texts is None:
        yield _Fault(f"tritonserver can't read the value of --{name}", f"write --{name}={flag.value}")
        return
    if flag.choices and texts[0] and not set(texts[0].lower().split(",")) <= set(flag.choices):
        words = f"the value of --{name} begins with a name that tritonserver doesn't know"
        yield _Fault(words, _one_of(flag.choices))
    for (kind, _), text in zip(parts, texts, strict=False):
        if (number := _OTHER_TYPES.get(kind, kind)) in _NUMBERS:
            yield from _number(text, number, f"the value of --{name}")


def _split(name: str, value: str, parts: Sequence[tuple[str, str]]) -> list[str] | None:
    """Returns the text of each part, or None if the value has another form."""
    texts, rest = list[str](), value
    for index, (kind, separator) in enumerate(parts):
        text, is_there, after = rest.partition(separator) if separator else (rest, "", "")
        if separator and not is_there:
            if index == 0 and name in _MAY_LACK_FIRST:
                texts.append("")  # e.g. default-max-batch-size=4
                continue
            if index == len(parts) - 2 and name in _MAY_LACK_LAST:
                return [*texts, rest]
            return None
        if not text and kind == "string":
            return None
        texts.append(text)
        rest = after
    return texts


def _setting(name: str, value: str, flags: Mapping[str, Flag]) -> Iterator[_Fault]:
    """Yields the faults of a number that is a setting's value."""
    if match := _SETTINGS.fullmatch(value):
        yield from _number(match[2], "integer", f"{match[1]} of --{name}")
    if name == "trace-config":
        setting, _, text = value.rpartition(",")[2].partition("=")
        old = flags.get(f"trace-{setting}")  # the flags that --trace-config replaces
        if old is not None and old.value == "<integer>":
            yield from _number(text, "integer", f"{setting} of --{name}")


def _number(text: str, kind: str, what: str) -> Iterator[_Fault]:
    text, whole = text.lstrip(), "a whole number" if kind == "integer" else "a number"
    match = _NUMBERS[kind].match(text)
    if match is None:
        yield _Fault(f"{_quoted(text)} for {what} is not {whole}", f"write {whole}")
    elif rest := text[match.end() :]:
        words = f"Triton reads only {match[0]} of {_quoted(text)} for {what}"
        remedy = f"write {whole} without a unit" if rest.isalpha() else f"write {whole}"
        yield _Fault(words, remedy, Severity.WARNING, "TR520")


def _one_of(choices: Sequence[str]) -> str:
    return f"write one of {', '.join(choices)}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
