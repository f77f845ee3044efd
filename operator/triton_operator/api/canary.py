"""The canary of a TritonModel: servers with another image or configuration that get a part of the requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .fields import NO_SPACE, Base, config, rule
from .overrides import ModelOverrides

MAX_BY_SERVERS = 50
"""The largest weight without a route. Above it, each of the other servers would need more than one of the canary's."""


class CanaryModelImage(Base):
    """The model image of the canary's servers. Path, secrets and delivery are those of spec.modelImage."""

    reference: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)]
    """Image reference with a tag or a digest."""


class CanaryServer(Base):
    """The server of the canary's pods. The rest is as in spec.server."""

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)]
    """Image of the Triton server."""


class Gate(Base):
    """When a canary is good, and when it is worse than the other servers."""

    step_seconds: Annotated[int, Field(ge=10, le=604800)] = 300
    """How long it gets the weight of a step before it may be good, in seconds."""
    min_requests: Annotated[int, Field(ge=1, le=10_000_000)] = 100
    """How many requests it, and also the other servers together, answer in that time at least."""
    max_slowdown_percent: Annotated[int, Field(ge=10, le=10_000)] = 25
    """By how many percent its requests may take longer than those of the other servers."""


class Canary(Base):
    """Further servers with another model image, server image or configuration, which get a part of the requests.

    Fields that aren't set are those of the spec.
    """

    model_config = config(
        rule(
            "has(self.modelImage) || has(self.server) || has(self.models)",
            "canary differs from the other servers in nothing: set modelImage, server or models, or remove canary",
        ),
        rule(
            "!has(self.steps) || self.steps.all(step, step < self.weight)",
            "steps are the weights before canary.weight: each must be less than weight",
        ),
        rule(
            "!has(self.comparePercent) || self.comparePercent == 0 || (has(self.mirror) && self.mirror)",
            "canary.comparePercent needs canary.mirror, because answers to copies are compared: add mirror: true, or "
            "remove comparePercent",
        ),
    )

    model_image: CanaryModelImage | None = None
    """The model image of the canary's servers. Default: spec.modelImage."""
    server: CanaryServer | None = None
    """The server image of the canary's pods. Default: spec.server.image."""
    models: ModelOverrides | None = None
    """Fields of the models' config.pbtxt, instead of those in spec.models. Default: spec.models."""
    weight: Annotated[int, Field(ge=0, le=100)] = 10
    """Percentage of the requests that the canary gets, once one of its servers is ready. With spec.route the Gateway
    chooses for each request, and the Service has the other servers only. Without it, the Service has all servers, and
    the canary as many as come near this share of the connections: at most 50. 0: the canary runs and gets no
    requests."""
    steps: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(max_length=20)] = []
    """Smaller weights that it gets first, in ascending order, such as 5, 20. It gets the next one, and at last weight,
    when it is good. Default: none."""
    mirror: bool = False
    """Whether the canary gets copies of the requests instead: steps and weight are the percentage of the requests that
    the Gateway copies for it, clients get the answers of the other servers only, and what it answers is dropped. It is
    judged by them in the same way. Copies have the effects of requests, such as writes to a database. They don't count
    in max-qps, the alerts and the autoscaler. Needs spec.route, and Gateway API 1.3 for less than 100 %."""
    compare_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Percentage of the HTTP requests through the Gateway whose answers may be compared with those of the other
    servers, at most one per second and server of the canary: another container of its pods sends each of them to its
    server, and twice to the others, so they have the effects of three requests. Those whose two answers differ don't
    count. status.canary.answers has the result; different answers make no canary worse. Needs mirror.
    Default: 0, none, without that container."""
    gate: Gate = Gate()
    """How it is judged. A canary that is worse than the other servers gets no requests any more until spec.canary, or
    what its servers have of the rest of the spec, changes."""

    @property
    def weights(self) -> list[int]:
        """The weights that it gets one after the other."""
        return [*sorted({step for step in self.steps if step < self.weight}), self.weight]
