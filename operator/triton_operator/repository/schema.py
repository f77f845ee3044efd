"""Triton's own schema of config.pbtxt, without the client that it is shipped in."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "triton_operator.repository._model_config_pb2"


def _model_config_pb2() -> ModuleType:
    """The generated module, loaded by its file.

    `import tritonclient.grpc` would run that package's `__init__`, hence grpc, asyncio and numpy, at 150 to 300 ms
    for every start of a pod; the generated module alone needs protobuf and takes 30 to 45 ms with it. Protobuf keeps
    one set of classes a process, so that importing the client afterwards gives the very same ones.

    Raises ImportError where tritonclient is not installed, or no longer has the file.
    """
    package = util.find_spec("tritonclient.grpc")
    for folder in (package.submodule_search_locations if package else None) or ():
        path = Path(folder, "model_config_pb2.py")
        spec = util.spec_from_file_location(_NAME, path)
        if spec and spec.loader and path.is_file():
            module = util.module_from_spec(spec)
            sys.modules[_NAME] = module
            spec.loader.exec_module(module)
            return module
    raise ImportError("tritonclient.grpc has no model_config_pb2.py: install tritonclient[grpc]")


_pb2 = _model_config_pb2()

ModelConfig: Any = _pb2.ModelConfig
"""The message class `inference.ModelConfig` of the installed tritonclient, which may be newer than the server."""

DataType: Any = _pb2.DataType
"""The enum of tensor types; `DataType.Name(value)` gives `TYPE_FP32`."""

ModelInstanceGroup: Any = _pb2.ModelInstanceGroup
"""For its kinds: KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL."""


def type_name(value: int) -> str:
    """The name of a tensor's type, e.g. TYPE_FP32; its number where the schema has no such type."""
    known = DataType.DESCRIPTOR.values_by_number.get(value)
    return known.name if known is not None else str(value)
