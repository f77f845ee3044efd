"""Triton's schema of config.pbtxt, from tritonclient, without importing the client."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "triton_repository_check._model_config_pb2"


def _model_config_pb2() -> ModuleType:
    """Loads the generated module from its file.

    `import tritonclient.grpc` imports grpc, asyncio and numpy, which takes 150 to 300 ms at each start of a pod. The
    generated module needs only protobuf, which takes 30 to 45 ms together. Protobuf keeps one set of classes for each
    process, so a later import of the client has the same classes.

    Raises ImportError if tritonclient is not installed, or doesn't have the file.
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
"""The message class with the kinds KIND_AUTO, KIND_GPU, KIND_CPU and KIND_MODEL."""


def type_name(value: int) -> str:
    """Returns the name of a tensor's type, e.g. TYPE_FP32; its number if the schema doesn't have it."""
    descriptor = DataType.DESCRIPTOR.values_by_number.get(value)
    return descriptor.name if descriptor is not None else str(value)
