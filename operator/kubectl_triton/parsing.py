"""Reads TritonModels from YAML files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, TextIO, cast, get_args

import click
import yaml
from pydantic import BaseModel, ValidationError

from triton_operator.api import names
from triton_operator.api.types import TritonModel, TritonModelSpec
from triton_repository_check.text import one_line

_MAX_NODES = 100_000
"""Maximum number of values in a file, with aliases. The largest TritonModel that the API server takes has a tenth."""


def models(file: TextIO, namespace: str) -> list[tuple[TritonModel, dict[str, Any]]]:
    """Returns the TritonModels in a YAML file, each with its document. Ignores other kinds.

    `namespace` is the default namespace. Raises click.ClickException if the file can't be read, contains no
    TritonModel, or contains an invalid one.
    """
    documents = [d for d in _documents(file) if isinstance(d, dict) and d.get("kind") == names.KIND]
    if not documents:
        raise click.ClickException(f"{file.name}: the file contains no {names.KIND}")
    for document in documents:
        version = document.get("apiVersion", names.API_VERSION)
        if version != names.API_VERSION:
            raise click.ClickException(
                f"{file.name}: {names.KIND} has the apiVersion {version!r}, but this program supports only "
                f"{names.API_VERSION}"
            )
    return [(_parse(document, namespace), document) for document in documents]


def _documents(file: TextIO) -> list[Any]:
    try:
        return list(_constructed(yaml.SafeLoader(file.read()), file.name))
    except OSError as error:
        raise click.ClickException(f"{file.name}: can't be read: {error.strerror}") from None
    except RecursionError:
        raise click.ClickException(f"{file.name}: lists and maps are nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or an invalid date
        raise click.ClickException(f"{file.name}: {error}") from None


def _constructed(loader: yaml.SafeLoader, name: str) -> Iterator[Any]:
    """Yields the documents. Counts the values of each before it makes them, because a merge key (`<<`) copies them."""
    size = 0
    while loader.check_node():
        node = cast(yaml.Node, loader.get_node())
        size += _size(node, {})
        if size > _MAX_NODES:
            raise click.ClickException(f"{name}: with its aliases it has more than {_MAX_NODES:,} values")
        yield loader.construct_document(node)


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Returns how many values a node has if each alias is a copy. Raises RecursionError if one contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


def _parse(document: dict[str, Any], namespace: str) -> TritonModel:
    original = document.get("metadata") or {}
    metadata = {"namespace": namespace, **original} if isinstance(original, dict) else {}
    for field in _unknown(TritonModelSpec, document.get("spec"), "spec"):
        note = f"{metadata.get('name', '?')}: {field} is ignored here, and the API server refuses it: no such field"
        click.echo(one_line(note), err=True)
    try:
        return TritonModel.model_validate({**document, "metadata": metadata})
    except ValidationError as error:
        lines = [f"  {'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()]
        raise click.ClickException("\n".join([f"{metadata.get('name', '?')}:", *lines])) from None


def _unknown(kind: type[BaseModel], data: Any, place: str) -> Iterator[str]:
    """Yields the paths of fields that `kind` doesn't have. Skips lists, and types that are Kubernetes' own."""
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    for name, value in data.items() if isinstance(data, dict) else ():
        if name not in fields:
            yield f"{place}.{name}"
            continue
        annotation = fields[name].annotation
        for part in (annotation, *get_args(annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _unknown(part, value, f"{place}.{name}")
