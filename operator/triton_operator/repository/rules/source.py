"""model.py of the python backend: what can be told without running it.

It is read by the Python that this runs on, which must be no older than the server's: newer syntax would be called
an error here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.rules.base import error

CLASS = "TritonPythonModel"


def python(_: Repository, model: Model) -> Iterator[Finding]:
    """TR301-TR303: syntax, the class, and its execute, without which a model loads and fails every request."""
    for file, text in model.sources.items():
        try:
            tree = ast.parse(text)
        except SyntaxError as problem:
            yield _syntax(file, problem)
            continue
        except (ValueError, RecursionError, MemoryError) as problem:  # null bytes; nesting beyond the parser
            yield error(file, "TR301", f"cannot be parsed: {problem}", "correct it")
            continue
        if not _binds(tree.body, CLASS):
            yield error(
                file,
                "TR302",
                f"there is no class {CLASS}, which the python backend looks for",
                f"name the model's class {CLASS}",
            )
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == CLASS and not _may_execute(node):
                message = f"class {CLASS} has no method execute"
                remedy = "add def execute(self, requests)"
                place = node.lineno, node.col_offset + 1
                base = error(file, "TR303", message, remedy)
                yield Finding(base.code, base.severity, file, *place, message, remedy)


def completes_itself(model: Model) -> bool:
    """Whether model.py may add tensors to what config.pbtxt declares."""
    return any("auto_complete_config" in text for text in model.sources.values())


def _syntax(file: str, problem: SyntaxError) -> Finding:
    base = error(file, "TR301", f"syntax: {problem.msg}", "correct the Python source")
    text = (problem.text or "").strip()[:80]
    message = f"{base.message}, in: {text}" if text else base.message
    return Finding(base.code, base.severity, file, problem.lineno, problem.offset, message, base.remedy)


def _binds(body: list[ast.stmt], name: str) -> bool:
    """Whether the top level may bind `name`: by class, import, assignment, also inside of if, try and with."""
    for top in body:
        for node in (top, *ast.walk(top)) if not isinstance(top, ast.ClassDef | ast.FunctionDef) else (top,):
            match node:
                case ast.ClassDef(name=bound) | ast.FunctionDef(name=bound) if bound == name:
                    return True
                case ast.Name(id=bound, ctx=ast.Store()) if bound == name:
                    return True
                case ast.alias() if name in (node.asname or node.name, "*") or node.name == "*":
                    return True
    return False


def _may_execute(node: ast.ClassDef) -> bool:
    """Whether the class has execute, or something that could bring it: a base, a metaclass, a decorator."""
    return bool(node.bases or node.keywords or node.decorator_list) or _binds_method(node)


def _binds_method(node: ast.ClassDef) -> bool:
    for item in node.body:
        for inner in ast.walk(item) if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) else (item,):
            match inner:
                case ast.FunctionDef(name="execute") | ast.AsyncFunctionDef(name="execute"):
                    return True
                case ast.Name(id="execute", ctx=ast.Store()) | ast.alias(name="execute"):
                    return True
    return False
