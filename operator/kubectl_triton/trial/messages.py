"""Reads the errors of Triton: what failed, and the place in a model's program. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from triton_repository_check import view
from triton_repository_check.text import one_line

_ROOTS = (f"{view.REPOSITORY}/", "/models/")
_FRAME = re.compile(r"^ +(?P<path>/.*)\((?P<line>\d+)\): \S+", re.MULTILINE)
_QUOTED_FRAME = re.compile(r'^ *File "(?P<path>/[^"]*)", line (?P<line>\d+)', re.MULTILINE)
_TRACE = "\nAt:\n"
_PREFIX = re.compile(
    r"^(?:\[request id: [^\]]*\] )?(?:in ensemble '[^']*', )?"
    r"(?:Failed to process the request\(s\) for model (?:instance )?'[^']*', message: )?"
)
_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: |$)")
_OWN = frozenset({"TritonModelException", "TritonError", "c_python_backend_utils.TritonModelException"})
"""The exceptions by which a program refuses a request."""
_DEAD = re.compile(r"[Ss]tub process .*(?:is not healthy|exited|terminated|died)|failed to restart stub")
_QUEUE = re.compile(r"Request timeout expired|Exceeds maximum queue size")
_CODE = re.compile(
    r"^(?:NameError|UnboundLocalError|ImportError|ModuleNotFoundError|NotImplementedError|RecursionError)\b"
    r"|^AttributeError: (?:module |type object |'(?:\w+\.)*(?:InferenceRe\w+|Tensor|TritonPythonModel|Logger|ndarray)')"
    r"|^TypeError: .*(?:argument|is not callable|not iterable|incompatible (?:constructor|function)"
    r"|is required, not|JSON serializable|can only concatenate|can't concat)"
)
"""Exceptions whose cause is the program, whatever the values of a request are."""
_SERVER = re.compile(
    r"unexpected (?:shape|data ?type|inference|size)|inference (?:request|input|output)|expected \d+ inputs"
    r"|onnx ?runtime error|input byte size|has no ready|is not ready|unknown model|not found|failed to |Failed to "
    r"|Number of InferenceResponse|in ensemble|doesn't support|unable to|Expected a list|[Uu]nsupported|shared memory"
)
"""Words of Triton itself and of its backends, which aren't a program's own."""
_WORDS = 500
_MAX_LENGTH = 1 << 14
"""Maximum length of a message that is read. A program can return any."""


class Kind(StrEnum):
    """How a request failed."""

    PROGRAM = "program"
    """An exception that no value of a request causes: a wrong name, a wrong argument."""
    EXCEPTION = "exception"
    SERVER = "server"
    """An error of Triton or of a backend."""
    REFUSED = "refused"
    """An error that the program itself returned."""
    QUEUE = "queue"
    """Refused by the model's queue policy, as configured."""
    DEAD = "dead"
    """The model's process ended."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of Triton for a request or a load.

    - `words`: one line without the traceback.
    - `file`: the path in the repository of the innermost frame that is there; "" if there is none. `line`: from 1.
    """

    kind: Kind
    words: str
    file: str = ""
    line: int | None = None


def read(message: str, models: Collection[str]) -> Fault:
    """Returns what an error of Triton says. `models`: the directories of the repository."""
    message = message[:_MAX_LENGTH]
    head = message.partition(_TRACE)[0]
    file, line = place(message, models)
    body = _PREFIX.sub("", head.strip())
    words = one_line(body)[:_WORDS]
    name = _EXCEPTION.match(body)
    if _DEAD.search(head):
        kind = Kind.DEAD
    elif _QUEUE.search(head):
        kind = Kind.QUEUE
    elif name and (len(head) < len(message) or file) and name["name"] not in _OWN:
        kind = Kind.PROGRAM if _CODE.search(body) else Kind.EXCEPTION
    elif name and name["name"] in _OWN:
        kind = Kind.REFUSED
    else:
        kind = Kind.SERVER if _SERVER.search(body) else Kind.REFUSED
    return Fault(kind, words or "no words", file, line)


def place(message: str, models: Collection[str]) -> tuple[str, int | None]:
    """Returns the file in the repository and the line of the innermost frame of a traceback; "" and None without."""
    frames = [(match["path"], int(match["line"])) for match in _FRAME.finditer(message)]
    # Python prints the innermost frame last, the python backend first.
    frames += [(match["path"], int(match["line"])) for match in _QUOTED_FRAME.finditer(message)][::-1]
    for path, line in frames:
        for root in _ROOTS:
            inner = path.removeprefix(root)
            if inner != path and inner.split("/")[0] in models:
                return one_line(inner), line
    return "", None
