"""TritonModels in files."""

from __future__ import annotations

from typing import Any, TextIO

import click
import yaml
from pydantic import ValidationError

from triton_operator.api import names
from triton_operator.api.types import TritonModel


def models(file: TextIO, namespace: str) -> list[tuple[TritonModel, dict[str, Any]]]:
    """The TritonModels of a file of YAML documents, each with its document, other kinds passed over; in `namespace`
    where they name none.

    Raises click.ClickException where the file can't be parsed, holds none, or one that isn't valid.
    """
    found = [d for d in _documents(file) if isinstance(d, dict) and d.get("kind") == names.KIND]
    if not found:
        raise click.ClickException(f"{file.name}: no {names.KIND} in it")
    for document in found:
        said = document.get("apiVersion", names.API_VERSION)
        if said != names.API_VERSION:
            raise click.ClickException(
                f"{file.name}: a {names.KIND} of apiVersion {said!r}, and this program knows {names.API_VERSION}"
            )
    return [(_parse(document, namespace), document) for document in found]


def _documents(file: TextIO) -> list[Any]:
    try:
        return list(yaml.safe_load_all(file.read()))
    except OSError as error:
        raise click.ClickException(f"{file.name}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise click.ClickException(f"{file.name}: lists and maps are nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or no date
        raise click.ClickException(f"{file.name}: {error}") from None


def _parse(document: dict[str, Any], namespace: str) -> TritonModel:
    given = document.get("metadata") or {}
    metadata = {"namespace": namespace, **given} if isinstance(given, dict) else {}
    try:
        return TritonModel.model_validate({**document, "metadata": metadata})
    except ValidationError as error:
        lines = [f"  {'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()]
        raise click.ClickException("\n".join([f"{metadata.get('name', '?')}:", *lines])) from None
