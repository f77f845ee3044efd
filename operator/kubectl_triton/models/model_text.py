"""Formats the models of servers as text, and says what a change of them means. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kubectl_triton.text_table import table
from triton_repository_check.text import one_line

if TYPE_CHECKING:
    from .triton import Listing, Row

Object = dict[str, Any]
READY = "READY"
NOT_EXPLICIT = (
    "spec.server.modelControl is none, with which Triton loads every model at its start and refuses changes. To load "
    "and unload models while the servers run, set modelControl: explicit and list the models in "
    "spec.server.loadModels; this change replaces the servers once"
)
TLS = (
    "the servers speak gRPC with TLS ({} in spec.server.args), and this command doesn't. `kubectl triton status` shows "
    "which models are loaded"
)
_HINTS = {
    "pods/portforward": "ask an administrator to bind the ClusterRole tritonmodel-modelcontrol",
    "cannot list resource": "ask an administrator to bind the ClusterRole tritonmodel-modelcontrol",
    "protocol is restricted": "this command has no key: use a client that has it, or remove the API from "
    "--grpc-restricted-protocol in spec.server.args",
    "explicit model load / unload is not allowed": "the server was started with another modelControl: see "
    "`kubectl triton status`",
}
"""Words of an error, and what the user can do."""


_MIXED = "  the servers are being replaced: those of the previous spec may load other models than loadModels says"


def failure(message: str) -> str:
    """Returns the message of an error with what the user can do."""
    hints = [hint for words, hint in _HINTS.items() if words in message]
    return "; ".join([message, *hints[:1]])


def explicit(model: Object) -> bool:
    """Returns whether Triton accepts changes of its models."""
    return bool(_server(model).get("modelControl") == "explicit")


def entrypoint(model: Object) -> str:
    """Returns the model that clients call; "" if it isn't known yet."""
    return str(model.get("status", {}).get("entrypoint") or model["spec"].get("entrypoint") or "")


def listing(model: Object, servers: Mapping[str, Listing], *, mixed: bool = False) -> str:
    """Returns a table of the models on each server, Triton's reasons, and the differences from the spec.

    `mixed`: whether some servers are of an earlier spec, and may have another list of models.
    """
    rows = [_cells(pod, row) for pod, server in sorted(servers.items()) for row in server.rows]
    lines = table(["SERVER", "MODEL", "VERSION", "STATE", "INSTANCES", "MEMORY"], rows) if rows else []
    for pod, server in sorted(servers.items()):
        lines += [f"  {pod}: {row.name}: {row.reason}" for row in server.rows if row.reason]
        if server.left_out:
            lines.append(f"  {pod}: and {server.left_out} more models")
    return "\n".join(map(one_line, [*lines, *([_MIXED] if mixed and explicit(model) else differences(model, servers))]))


def _cells(pod: str, row: Row) -> list[str]:
    instances = "-" if row.instances is None else str(row.instances)
    memory = "-" if row.memory is None else f"{row.memory / 2**20:.0f} MiB"
    return [pod, row.name, row.version or "-", row.state, instances, memory]


def differences(model: Object, servers: Mapping[str, Listing]) -> Iterator[str]:
    """Yields a line for each server whose loaded models aren't those of spec.server.loadModels and their steps."""
    if not explicit(model):
        return
    names = _listed(model)
    for pod, server in sorted(servers.items()):
        rows = [row for row in server.rows if row.state == READY]
        targets = _with_steps(names, rows)
        extra = sorted({row.name for row in rows} - targets)
        if extra:
            yield f"  {pod}: not in spec.server.loadModels, so a restarted server doesn't load it: {_names(extra)}"
        missing = sorted(set(names) - {row.name for row in rows})
        if missing and not server.left_out:
            yield f"  {pod}: in spec.server.loadModels, but not loaded: {_names(missing)}"


def obstacle(verb: str, model: str, rows: Sequence[Row], entry: str) -> str:
    """Returns why `verb` isn't done on a server with these models; "" if nothing prevents it.

    `entry`: the entrypoint, if it must stay loaded.
    """
    states = ", ".join(sorted({row.state for row in rows if row.name == model}))
    if verb == "reload" and READY not in states:
        return f"{model} isn't loaded (state: {states or 'unknown'}): use `kubectl triton load`"
    if verb == "unload" and (not states or states == "UNAVAILABLE"):
        return f"{model} isn't loaded (state: {states or 'unknown'})"
    if verb == "unload" and entry and entry in (model, *dependents(model, rows)):
        return f"clients call {entry}, and no server is ready without {model}. To unload it anyway, add --force"
    return ""


def dependents(model: str, rows: Sequence[Row]) -> list[str]:
    """Returns the loaded ensembles that Triton unloads with `model`, because it is a step of them."""
    return sorted({row.name for row in rows if row.name != model and model in _with_steps([row.name], rows)})


def drift(model: Object, name: str, *, loaded: bool) -> Iterator[str]:
    """Yields what a server does that starts after `name` was loaded or unloaded by hand."""
    is_listed = name in _listed(model)
    if loaded and not is_listed:
        yield (
            f"{name} isn't in spec.server.loadModels: a server that starts or restarts doesn't load it, unless a "
            "model there is an ensemble with this step. To keep it loaded, add it to loadModels"
        )
    if not loaded and is_listed:
        yield (
            f"{name} is in spec.server.loadModels: a server that starts or restarts loads it again, and the "
            "TritonModel reports it as not loaded until then. To keep it unloaded, remove it from loadModels"
        )


def settings(model: Object, name: str) -> Object:
    """Returns the fields of config.pbtxt that spec.models sets for the model `name`."""
    return next((dict(item["config"]) for item in model["spec"].get("models") or () if item["name"] == name), {})


def configuration(config: Any, output: str, settings: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Returns a ModelConfig as `text` (config.pbtxt) or `json`, without characters that control a terminal.

    Marks the fields in `settings` with a comment in the text.
    """
    from google.protobuf import json_format, text_format

    if output == "json":
        data = json_format.MessageToDict(config, preserving_proto_field_name=True)
        return json.dumps(data, indent=2).replace("\x7f", "\\u007f")
    text = re.sub(r"[^\x00-\x7e]", _escaped, str(text_format.MessageToString(config)).rstrip("\n"))
    return "\n".join(_marked(text.split("\n"), settings))


def _marked(lines: Sequence[str], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the text format, with a comment at each value or list in `settings`."""
    levels = [settings]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        name, _, rest = line.strip().partition(" ")
        value = levels[-1].get(name.rstrip(":"))
        if rest == "{":
            key = following.strip().removeprefix("key: ")
            if isinstance(value, Mapping) and key != following.strip():  # an entry of a map
                value = {"value": value.get(key.strip('"'))}
            levels.append(value if isinstance(value, Mapping) else {})
        elif name == "}":
            levels.pop()
        yield line if value is None or isinstance(value, Mapping) else f"{line}  # spec.models"


def _escaped(match: re.Match[str]) -> str:
    """Returns a character of a string as the text format writes its bytes, unless it can be printed."""
    return match[0] if match[0].isprintable() else "".join(f"\\{byte:03o}" for byte in match[0].encode())


def _server(model: Object) -> Object:
    return dict(model["spec"].get("server") or {})


def _listed(model: Object) -> list[str]:
    return list(_server(model).get("loadModels") or [])


def _with_steps(models: Sequence[str], rows: Sequence[Row]) -> set[str]:
    """Returns these models and the steps of the ensembles among them, and the steps' steps."""
    steps = {row.name: row.steps for row in rows}
    members, queue = set[str](), list(models)
    while queue:
        name = queue.pop()
        if name not in members:
            members.add(name)
            queue += steps.get(name, ())
    return members


def _names(names: Sequence[str], most: int = 20) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])
