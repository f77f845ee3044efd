"""Reads TritonModels from YAML files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, TextIO, cast

import click
import yaml
from pydantic import ValidationError

from triton_operator.api import faults, names
from triton_operator.api.plain_yaml import KubectlLoader
from triton_operator.api.types import TritonModel
from triton_operator.manifests import values
from triton_repository_check.text import one_line

_MAX_NODES = 100_000
"""Maximum number of values in a file, with aliases. The largest TritonModel that the API server takes has a tenth."""


def models(file: TextIO, namespace: str, judged: str = "") -> list[tuple[TritonModel, dict[str, Any]]]:
    """Returns the TritonModels in a YAML file, each with its document as the API server stores it. Ignores other kinds.

    `namespace` is the default namespace. `judged`: a field whose unknown parts the caller reports. Raises
    click.ClickException if the file can't be read, contains no TritonModel, or contains one with a value that the API
    server refuses.
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
    return [_parse(document, namespace, judged) for document in documents]


def _documents(file: TextIO) -> list[Any]:
    try:
        return list(_constructed(KubectlLoader(file.read()), file.name))
    except OSError as error:
        raise click.ClickException(f"{file.name}: can't be read: {error.strerror}") from None
    except RecursionError:
        raise click.ClickException(f"{file.name}: lists and maps are nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8
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


def _parse(document: dict[str, Any], namespace: str, judged: str) -> tuple[TritonModel, dict[str, Any]]:
    written, document = document, values.stored(document)
    original = document.get("metadata") or {}
    metadata = {"namespace": namespace, **original} if isinstance(original, dict) else {}
    name = one_line(str(metadata.get("name", "?")))
    for field in values.unknown(document):
        if not (judged and field.startswith(judged)):
            note = f"{name}: {field} is ignored here, and the API server refuses it: no such field"
            click.echo(one_line(note), err=True)
    spec = written.get("spec")
    for path in nulls(spec.get("models") if isinstance(spec, dict) else None, "spec.models"):
        words = "null changes nothing, so what config.pbtxt says stays: write a value, or remove the field"
        click.echo(one_line(f"{name}: {path}: {words}"), err=True)
    from . import rules  # the import of CEL takes a tenth of a second

    wrong = [*values.faults(document)]
    if not wrong:
        try:
            model = TritonModel.model_validate({**document, "metadata": metadata})
        except ValidationError as error:
            wrong = faults.of(error)
    if not wrong:
        # Only then: about another wrong value a rule may say something that isn't true.
        wrong = [*rules.faults({**document, "metadata": metadata})]
    if not wrong:
        return model, document
    raise click.ClickException("\n".join([f"{name}:", *(f"  {one_line(str(fault))}" for fault in wrong)]))


def nulls(value: Any, path: str) -> Iterator[str]:
    """Yields the path of each null in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [f"{path}.{key}"] if inner is None else nulls(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            name = item.get("name", "") if isinstance(item, dict) else ""
            yield from nulls(item, f"{path}.{name}")
