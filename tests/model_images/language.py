"""Copies of the sample language with other parameters."""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from model_images.support import LANGUAGE

REPOSITORY = LANGUAGE / "repository" / "language"


def copy(folder: Path, **parameters: str) -> None:
    """Writes the model with the name of the folder and with other parameters."""
    folder.mkdir()
    (folder / "1").mkdir()
    for file in (REPOSITORY / "1").iterdir():
        if file.is_file():
            (folder / "1" / file.name).write_bytes(file.read_bytes())
    config = text_format.Parse((REPOSITORY / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    config.name = folder.name
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
