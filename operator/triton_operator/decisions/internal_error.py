"""The problem of an exception that nothing expects: a fault of the operator itself."""

from __future__ import annotations

import traceback
from pathlib import Path

from triton_operator.pods import Problem

INTERNAL_ERROR = "InternalError"
_PACKAGE = Path(__file__).parent.parent


def internal_error(action: str, error: Exception, consequence: str) -> Problem:
    """Returns the problem, in the same words for the same fault, and without the exception's: they may quote the spec.

    - `action`: what failed, such as "to add servers". `consequence`: what that means for the servers.
    """
    return Problem(
        INTERNAL_ERROR,
        f"the operator failed {action}, with {type(error).__name__} in {_place(error)}: a fault of its own, not of the "
        f"spec. {consequence}. It tries again, at least once a minute. Its log has all of it, with the key of this "
        "TritonModel: look for a version in which it is fixed, or report it",
    )


def _place(error: Exception) -> str:
    """Returns the last file and line of this package that the exception passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    frame = own[-1] if own else frames[-1]
    path = Path(frame.filename)
    return f"{path.relative_to(_PACKAGE) if own else path.name}:{frame.lineno}"
