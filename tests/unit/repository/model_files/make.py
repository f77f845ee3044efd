"""Makes the model files in this directory with PyTorch 2.15 and OpenVINO 2026.4, which aren't packages of this project.

python -m venv /tmp/venv && /tmp/venv/bin/pip install torch openvino
/tmp/venv/bin/python tests/unit/repository/model_files/make.py
"""

# mypy: ignore-errors
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import openvino
import torch
from openvino import opset13


class Double(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def make() -> None:
    """Writes the files to the current directory."""
    double = Double().eval()
    torch.jit.script(double).save("script.pt")
    torch.jit.trace(double, torch.zeros(1, 4)).save("trace.pt")
    torch.jit.save_jit_module_to_flatbuffer(torch.jit.script(double), "flatbuffer.pt")
    torch.save(double.state_dict(), "state.pt")
    torch.save(double.state_dict(), "state_pickle.pt", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(double, (torch.zeros(1, 4),)), "export.pt2")

    x = opset13.parameter([-1, 4], np.float32, name="x")
    x.output(0).set_names({"x", "first, of all"})
    product = opset13.multiply(x, opset13.constant(np.array([2, 3, 4, 5], np.float32)))
    product.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([opset13.result(product)], [x], "double"), "model.xml", compress_to_fp16=False)


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    make()
