"""Checks of the names that model.py uses, imports and calls."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, instead, near, warning
from triton_repository_check.rules.source import (
    Function,
    bindings,
    classes,
    imports_local_modules,
    place,
    returns,
    trees,
)

CODES = {
    "TR313": "model.py: a name is never defined",
    "TR316": "model.py: a decoupled model never marks its last response",
    "TR328": "model.py: a method is used without a call",
}

_ALWAYS = frozenset(dir(builtins)) | {
    "__file__",
    "__name__",
    "__doc__",
    "__spec__",
    "__path__",
    "__class__",
    "pb_utils",
}
"""Names that are always defined. TR310 checks pb_utils."""
_DYNAMIC_BINDINGS = frozenset(
    {"exec", "eval", "globals", "locals", "vars", "setattr", "__import__", "__dict__", "_convert_"}
)
"""Names whose use may define other names at run time."""
_GUARDED = ast.If | ast.Try | ast.While | ast.With | ast.Lambda | ast.BoolOp | ast.IfExp | ast.comprehension
"""Nodes that may skip the evaluation of their parts."""
_UTILS = (
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "numpy_to_triton_type",
    "using_decoupled_model_transaction_policy",
)
"""The functions and classes of pb_utils that are often used."""
_MEMBERS = {
    "Logger": ("log", "log_info", "log_warn", "log_error", "log_verbose", "LogLevel",
               "INFO", "WARNING", "ERROR", "VERBOSE"),
    "MetricFamily": ("Metric", "COUNTER", "GAUGE", "HISTOGRAM"),
    "TritonError": ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
                    "CANCELLED", "code", "message"),
}  # fmt: skip
"""What these classes have in server 2.71."""
_METHODS = frozenset({"as_numpy", "has_error", "is_cancelled"})
"""Methods of tensors, responses and requests that are often taken for values."""
_LOOK_ALIKE = 0.75
"""How similar a misspelt name is, as for difflib."""
_FINAL = "TRITONSERVER_RESPONSE_COMPLETE_FINAL"


def undefined(_: Repository, model: Model) -> Iterator[Finding]:
    """TR313: a name is used but never defined. Reports each name once."""
    for file, tree in trees(model):
        bound, dynamic = _bound(tree)
        if dynamic:
            continue
        top = {id(node) for statement in tree.body for node in _always_evaluated(statement)}
        reported: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or node.id in bound or node.id in _ALWAYS or node.id in reported:
                continue
            reported.add(node.id)
            close = near(node.id, bound)
            yield (error if id(node) in top else warning)(
                file,
                "TR313",
                f"{node.id} is used but never defined or imported",
                f"did you mean {close!r}?" if close else f"import or define {node.id}",
                place(node),
            )


def final_flag(_: Repository, model: Model) -> Iterator[Finding]:
    """TR316: a model that sends its responses never marks the last one, so that clients wait forever."""
    if model.config is None:
        return
    for file, tree in trees(model):
        if not model.config.model_transaction_policy.decoupled and not _returns_nothing(tree):
            continue
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
        flags = any(isinstance(n, ast.keyword) and n.arg == "flags" for n in ast.walk(tree))
        if "get_response_sender" not in names or _FINAL in names or flags or imports_local_modules(model, file, tree):
            continue
        sender = min(
            (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "get_response_sender"),
            key=lambda n: n.lineno,
        )
        yield warning(
            file,
            "TR316",
            f"sends responses but never {_FINAL}: clients wait forever for the last response",
            f"after the last response, call sender.send(flags=pb_utils.{_FINAL})",
            place(sender),
        )


def utils(_: Repository, model: Model) -> Iterator[Finding]:
    """TR313: pb_utils doesn't have the name, but a similar one. A warning, because pb_utils may be newer."""
    for file, tree in trees(model):
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="pb_utils"), attr=name) if name not in _UTILS:
                    if meant := near(name, _UTILS, _LOOK_ALIKE):
                        message = f"pb_utils has no {name}"
                        yield warning(file, "TR313", message, f"did you mean {meant!r}?", place(node))
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pb_utils"), attr=owner), attr=name):
                    known = _MEMBERS.get(owner, (name,))
                    if name not in known and not name.startswith("__"):
                        message = f"pb_utils.{owner} has no {name}"
                        yield warning(file, "TR313", message, instead(name, known, "one of its names"), place(node))


def uncalled(_: Repository, model: Model) -> Iterator[Finding]:
    """TR328: a method is used like a value. As a condition it is always true; a warning, since it may not matter."""
    for file, tree in trees(model):
        nodes = list(ast.walk(tree))
        own = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        own |= {node.name for node in nodes if isinstance(node, Function)}
        # A function may get the method, and call it.
        called = {id(part) for n in nodes if isinstance(n, ast.Call) for part in (n.func, *n.args)}
        called |= {id(node.value) for node in nodes if isinstance(node, ast.keyword)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in _METHODS - own and id(node) not in called:
                message = f"{node.attr} is a method, and isn't called here"
                yield warning(file, "TR328", message, f"write {node.attr}()", place(node))


def _returns_nothing(tree: ast.Module) -> bool:
    """Whether execute returns no value, so that it has to send the responses."""
    methods = [item for node in classes(tree) for item in node.body if isinstance(item, Function)]
    executes = [method for method in methods if method.name == "execute"]
    return bool(executes) and all(node.value is None for method in executes for node in returns(method))


def _bound(tree: ast.Module) -> tuple[set[str], bool]:
    """Returns all names that the file binds in any scope, and whether it may bind others at run time."""
    bound = set(bindings(tree))
    dynamic = False
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _DYNAMIC_BINDINGS:
                dynamic = True
            case ast.alias(name="*"):
                dynamic = True
            case ast.Try(body=body, handlers=handlers) if any(map(_catches_name_error, handlers)):
                bound.update(n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name))
    return bound, dynamic


def _catches_name_error(handler: ast.ExceptHandler) -> bool:
    """Whether the handler catches NameError."""
    nodes = ast.walk(handler.type) if handler.type is not None else ()
    return handler.type is None or any(getattr(n, "id", "") in ("NameError", "Exception") for n in nodes)


def _always_evaluated(statement: ast.stmt) -> Iterator[ast.AST]:
    """Returns the nodes that the import always evaluates: none in function bodies, annotations or behind conditions."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, _GUARDED):
            continue
        if isinstance(node, Function):
            todo += [*node.decorator_list, *node.args.defaults]
            continue
        yield node
        todo += [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "annotation", None)]


CHECKS: Checks = (
    ("model.py: names", each_model(undefined)),
    ("model.py: names of pb_utils", each_model(utils)),
    ("model.py: methods without a call", each_model(uncalled)),
    ("model.py: the last response", each_model(final_flag)),
)
