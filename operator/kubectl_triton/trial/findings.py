"""The findings about requests, in words. Pure."""

from __future__ import annotations

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.text import one_line

from .messages import Fault

CODES = {
    "TR904": "a request fails (--with-server)",
    "TR905": "a response doesn't fit config.pbtxt (--with-server)",
    "TR906": "a request is never answered (--with-server)",
    "TR907": "a request ends the model's process, or the server (--with-server)",
    "TR908": "the model refuses requests (--with-server)",
    "TR909": "a model can't be unloaded and loaded again (--with-server)",
    "TR910": "requests can't be made or sent (--with-server)",
}

_REAL = (
    "if clients can send such values, answer them with pb_utils.TritonError; if not, give values of real requests with "
    "--input-data"
)


def failed(model: str, fault: Fault, severity: Severity) -> Finding:
    """Returns that a request fails by an exception, or by an error of Triton or a backend."""
    remedy = "correct the model" if severity is Severity.ERROR else _REAL
    return _of_fault("TR904", severity, model, fault, f"fails: {fault.words}", remedy)


def wrong(model: str, words: str, severity: Severity) -> Finding:
    """Returns that a response isn't what the configuration declares."""
    return _finding("TR905", severity, model, words, "return what config.pbtxt declares, or declare what you return")


def late(model: str, seconds: float, *, has_responses: bool) -> Finding:
    """Returns that a request isn't answered. `has_responses`: whether a stream had some, but no end."""
    what = "its stream has not ended: no response was the final one" if has_responses else "there is no answer"
    remedy = (
        "find what waits or loops; a decoupled model must end each request with TRITONSERVER_RESPONSE_COMPLETE_FINAL"
    )
    return _finding("TR906", Severity.ERROR, model, f"{what} after {seconds:.0f} s", remedy)


def dead(model: str, fault: Fault) -> Finding:
    """Returns that a request ended the model's process."""
    remedy = "look for os._exit, a library that crashes, or memory that runs out; the server's log may say which"
    return _of_fault("TR907", Severity.ERROR, model, fault, f"the model's process ends: {fault.words}", remedy)


def gone(model: str, words: str) -> Finding:
    """Returns that the server has ended. `model`: the one that got the last request."""
    message = f"the server ends, or doesn't answer anymore: {one_line(words)}"
    return _finding("TR907", Severity.ERROR, model, message, "see its log; the models after this one were not tried")


def gone_by_itself(model: str, words: str) -> Finding:
    """Returns that the server ended after a request was cancelled. A warning: servers have such faults of their own."""
    message = f"the server ends: {one_line(words)}"
    return _finding("TR907", Severity.WARNING, model, message, "see its log; a newer server may not end")


def refused(model: str, fault: Fault, severity: Severity) -> Finding:
    """Returns that the model's own program refuses a request."""
    remedy = "nothing to do, if it shouldn't take such values" if severity is Severity.NOTE else _REAL
    return _of_fault("TR908", severity, model, fault, f"refused by the model: {fault.words}", remedy)


def not_loaded(model: str, fault: Fault) -> Finding:
    """Returns that a model can't be loaded again."""
    remedy = "free in finalize what initialize takes; expect files that a former start left"
    return _of_fault("TR909", Severity.ERROR, model, fault, f"can't be loaded again: {fault.words}", remedy)


def not_unloaded(model: str, words: str) -> Finding:
    """Returns that a model isn't unloaded. Only a warning: servers have such faults of their own."""
    message = f"can't be unloaded: {one_line(words)}"
    return _finding(
        "TR909", Severity.WARNING, model, message, "see that finalize ends what execute and initialize start"
    )


def not_made(model: str, why: str) -> Finding:
    """Returns that no request can be made from the configuration."""
    return _finding("TR910", Severity.NOTE, model, f"none can be made: {why}", "give inputs with --input-data")


def not_sent(model: str, why: str) -> Finding:
    """Returns that requests of a user can't be sent. `model`: "." for none."""
    return _finding(
        "TR910", Severity.ERROR, model, f"can't be sent: {one_line(why)}", "correct the file, or name its model"
    )


def _of_fault(code: str, severity: Severity, model: str, fault: Fault, message: str, remedy: str) -> Finding:
    return Finding(code, severity, fault.file or model, fault.line, None, message, remedy)


def _finding(code: str, severity: Severity, model: str, message: str, remedy: str) -> Finding:
    return Finding(code, severity, model, None, None, message, remedy)
