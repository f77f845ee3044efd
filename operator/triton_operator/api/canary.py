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


class Canary(Base):
    """Further servers with another model image, server image or configuration, which get a part of the requests.

    Fields that aren't set are those of the spec.
    """

    model_config = config(
        rule(
            "has(self.modelImage) || has(self.server) || has(self.models)",
            "canary differs from the other servers in nothing: set modelImage, server or models, or remove canary",
        )
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
