"""Faults in the source of model.py."""

from __future__ import annotations

from corpus.faults.fault import PRE, PRE_PY, Fault
from corpus.good.repository import ECHO
from support.mutations import add, edit, write

FAULTS = (
    Fault(
        "syntax error in model.py",
        "detection",
        edit(PRE_PY, "(self, args):", "(self, args:"),
        "TR301",
        "error",
        f"{PRE_PY}:6",
    ),
    Fault(
        "class with another name",
        "detection",
        edit(PRE_PY, "class TritonPythonModel", "class Model"),
        "TR302",
        "error",
        PRE_PY,
    ),
    Fault("missing execute", "detection", edit(PRE_PY, "def execute", "def run"), "TR303", "error", f"{PRE_PY}:5"),
    Fault(
        "initialize without args",
        "detection",
        edit(PRE_PY, "(self, args):", "(self):"),
        "TR304",
        "error",
        f"{PRE_PY}:6",
    ),
    Fault(
        "execute for a single request",
        "detection",
        edit(PRE_PY, "def execute(self, requests):", "def execute(self, request, requests):"),
        "TR304",
        "error",
        f"{PRE_PY}:9",
    ),
    Fault(
        "misspelled input in model.py",
        "detection",
        edit(PRE_PY, '"IMAGE"', '"IMAGES"'),
        "TR305",
        "error",
        f"{PRE_PY}:12",
    ),
    Fault(
        "misspelled output in model.py",
        "detection",
        edit(PRE_PY, '"SIZE"', '"SHAPE"'),
        "TR306",
        "error",
        f"{PRE_PY}:15",
    ),
    Fault(
        "output that model.py never creates",
        "detection",
        edit(PRE_PY, ', pb_utils.Tensor("SIZE", size)]', "]"),
        "TR307",
        "warning",
        f"{PRE}:9",
    ),
    Fault(
        "responses not returned",
        "detection",
        edit(PRE_PY, "        return responses\n", ""),
        "TR309",
        "error",
        f"{PRE_PY}:9",
    ),
    Fault(
        "responses returned and sent",
        "decoupled",
        edit("repeat/1/model.py", "return None", "return [None for _ in requests]"),
        "TR309",
        "warning",
        "repeat/1/model.py:13",
    ),
    Fault(
        "responses returned by a decoupled model",
        "decoupled",
        write("repeat/1/model.py", ECHO.encode()),
        "TR309",
        "error",
        "repeat/1/model.py:11",
    ),
    Fault(
        "pb_utils not imported",
        "detection",
        edit(PRE_PY, "import triton_python_backend_utils as pb_utils\n", ""),
        "TR310",
        "error",
        f"{PRE_PY}:11",
    ),
    Fault(
        "finalize with an argument",
        "cache",
        add("slow/1/model.py", "\n    def finalize(self, args):\n        pass\n"),
        "TR304",
        "warning",
        "slow/1/model.py:13",
    ),
)
