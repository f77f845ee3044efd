"""Waits that these tests share."""

from __future__ import annotations

from support import gen
from support.api import Api, Object, condition, eventually
from triton_operator.api import names

SOON = 10.0
ACCOUNT = names.account(gen.NAME)
CHILDREN = [
    ("ServiceAccount", ACCOUNT), ("Service", gen.NAME), ("Service", f"{gen.NAME}-headless"), ("Deployment", gen.NAME),
]  # fmt: skip


def model(api: Api) -> Object:
    return api.get("TritonModel", gen.NAME)


def wait_until_observed(api: Api) -> Object:
    """Waits until the status has the generation of the spec and the Deployment exists; returns the TritonModel."""

    def look() -> Object | None:
        current = model(api)
        observed = current.get("status", {}).get("observedGeneration") == current["metadata"]["generation"]
        return current if observed and condition(current, "Ready") else None

    return eventually(look, SOON, lambda: model(api))


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def progressing(api: Api, reason: str, name: str = gen.NAME) -> Object:
    return reached(api, "Progressing", reason, name)


def ready(api: Api, reason: str) -> Object:
    return reached(api, "Ready", reason)


def reached(api: Api, kind: str, reason: str, name: str = gen.NAME) -> Object:
    """Waits until the condition has this reason, and returns it."""

    def look() -> Object | None:
        current = condition(api.get("TritonModel", name), kind)
        return current if current.get("reason") == reason else None

    return eventually(look, SOON, lambda: api.get("TritonModel", name).get("status"))


def events(api: Api) -> list[str]:
    """Returns the reasons of the Events about TritonModels, in order."""
    matching = [e for e in api.list("Event") if e["involvedObject"]["kind"] == "TritonModel"]
    return [e["reason"] for e in sorted(matching, key=lambda e: int(version(e)))]
