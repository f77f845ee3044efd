"""Sends requests to each model of a server, and judges what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.text import one_line

from . import findings, requests
from .exchange import Exchange, LateError
from .given import GivenError, from_file, health_request, inputs_of
from .messages import read
from .outcome import Target
from .requests import Request
from .sender import GoneError, Sender
from .verdict import Judged, Sent, distinct, judge

SECONDS = 20.0
"""Default time limit for the answer to a request, in seconds."""
Say = Callable[[str], None]
Key: TypeAlias = tuple[str, str]
"""A model and its version."""
Files: TypeAlias = Mapping[str, tuple[str, bytes]]
"""Names and contents of files, by model."""
_AFTER = "after the requests"


@dataclass(frozen=True)
class Plan:
    """What is sent.

    - `models`: the directories of the repository.
    - `seconds`: the time limit for the answer to a request. `load_seconds`: for a load.
    - `each_step`: whether models that are only steps of ensembles get requests, too.
    - `files`: files with inputs; one by "" is for the model that has its inputs. `health`: health requests.
    - `only`: the models that get requests; empty for all.
    - `reloads`: whether the server may unload models: it is in explicit mode, and nobody else uses it.
    """

    models: Collection[str]
    seconds: float = SECONDS
    load_seconds: float = 120.0
    each_step: bool = False
    files: Files = field(default_factory=dict)
    health: Files = field(default_factory=dict)
    only: Collection[str] = ()
    reloads: bool = True


def run(address: str, plan: Plan, say: Say) -> list[Finding]:
    """Returns the findings about the models that the server at `address`, host:port of gRPC, serves."""
    with closing(Sender(address)) as sender:
        trial = _Trial(sender, plan, say)
        try:
            trial.run()
        except GoneError as error:
            trial.judged.append(Judged(findings.gone(trial.at, str(error)), "the requests"))
        except _EndedError as error:
            trial.judged.append(Judged(findings.not_unloaded(trial.at, str(error)), _AFTER))
        return distinct(trial.judged)


class _EndedError(Exception):
    """The server ended when a model was unloaded or loaded again."""


class _Trial:
    """The requests to the models of a server. `at`: the model that got the last one."""

    def __init__(self, sender: Sender, plan: Plan, say: Say) -> None:
        self.judged: list[Judged] = []
        self.at = "."
        self._sender, self._plan, self._say = sender, plan, say
        self._configs: dict[Key, Any] = {}
        self._files: dict[str, tuple[str, bytes]] = {}
        self._tried: dict[Key, Exchange] = {}
        self._faulty: set[str] = set()

    def run(self) -> None:
        """Sends all requests. Raises GoneError and _EndedError."""
        self._configs = {key: self._sender.config(*key) for key in self._sender.ready()}
        steps = {step.model_name for config in self._configs.values() for step in config.ensemble_scheduling.step}
        self._assign_files(steps)
        if self._plan.only:
            todo = [key for key in self._configs if key[0] in self._plan.only]
        else:
            todo = [key for key in self._configs if self._plan.each_step or key[0] not in steps]
        while todo:
            key = todo.pop(0)
            exchange = self._model(key)
            if exchange.base is None:  # so that the later steps of an ensemble are tried, too
                names = self._steps(key)
                todo += [k for k in self._configs if k[0] in names and k not in self._tried and k not in todo]
        if self._plan.reloads:
            for model in sorted({model for model, _ in self._configs} - self._faulty):
                self.at = model
                self._reload(model)
        # Servers of 2024 may end, or never unload a model again, after a request to it was cancelled.
        for key, exchange in self._tried.items():
            if key[0] not in self._faulty:
                self.at = key[0]
                try:
                    self._judge(exchange, exchange.interrupted())
                except GoneError as error:
                    self.judged.append(Judged(findings.gone_by_itself(self.at, str(error)), "a cancelled request"))
                    return

    def _steps(self, key: Key) -> set[str]:
        return {step.model_name for step in self._configs[key].ensemble_scheduling.step}

    def _model(self, key: Key) -> Exchange:
        """Sends the requests to a model that don't need others."""
        self.at, config = key[0], self._configs[key]
        exchange = self._tried[key] = Exchange(self._sender, _target(*key, config), config, self._plan.seconds)
        given, why = self._given(key[0], config), requests.unmakeable(config)
        if why and not given:
            self.judged.append(Judged(findings.not_made(key[0], why), "requests"))
            return exchange
        self._say(f"sends requests to {one_line(key[0])}")
        try:
            with suppress(LateError):
                exchange.run(given, makes=not why)
        finally:
            self._judge(exchange, exchange.sent)
        return exchange

    def _judge(self, exchange: Exchange, sent: Sequence[Sent]) -> None:
        judged = judge(exchange.target, exchange.config, sent, self._plan.models, exchange.sent)
        if any(one.finding.severity is Severity.ERROR for one in judged):
            self._faulty |= {
                exchange.target.model,
                *(step.model_name for step in exchange.config.ensemble_scheduling.step),
            }
        self.judged += judged

    def _reload(self, model: str) -> None:
        """Unloads a model, loads it again, and sends a request that was answered before."""
        if all(config.HasField("ensemble_scheduling") for (name, _), config in self._configs.items() if name == model):
            return
        finding = None
        try:
            if words := self._sender.unload(model, self._plan.seconds):
                finding = findings.not_unloaded(model, words)
            elif words := self._sender.load(model, self._plan.load_seconds):
                finding = findings.not_loaded(model, read(words, self._plan.models))
        except GoneError as error:
            raise _EndedError(f"the server ends: {error}") from None
        if finding is not None:
            self._faulty.add(model)
            self.judged.append(Judged(finding, _AFTER))
            return
        for key, exchange in self._tried.items():
            if key[0] == model:
                self._judge(exchange, exchange.again("after the model was loaded again"))

    def _given(self, model: str, config: Any) -> list[Request]:
        """Returns the requests that the user gave for a model."""
        given: list[Request] = []
        for files, reader in ((self._files, _from_file), (self._plan.health, _from_health)):
            if model in files:
                name, content = files[model]
                try:
                    given += reader(config, name, content)
                except GivenError as error:
                    self._not_sent(model, name, str(error))
        return given

    def _assign_files(self, steps: Collection[str]) -> None:
        """Gives each file to its model. One without a model is for the one that has its inputs, ensembles first."""
        names = {model: {tensor.name for tensor in config.input} for (model, _), config in self._configs.items()}
        for model, (name, content) in self._plan.files.items():
            try:
                wanted = inputs_of(content)
            except GivenError as error:
                self._not_sent(".", name, str(error))
                continue
            fitting = sorted((other for other in names if wanted <= names[other]), key=lambda other: other in steps)
            if model and model not in names:
                self._not_sent(".", name, f"the server doesn't serve {model}")
            elif model or fitting:
                self._files[model or fitting[0]] = (name, content)
            else:
                self._not_sent(".", name, f"no model has the inputs {', '.join(sorted(wanted))}")

    def _not_sent(self, model: str, name: str, why: str) -> None:
        self.judged.append(Judged(findings.not_sent(model, why), f"the requests of {one_line(name)}"))


def _from_file(config: Any, name: str, content: bytes) -> Iterator[Request]:
    return from_file(config, content, name)


def _from_health(config: Any, name: str, content: bytes) -> Iterator[Request]:
    yield health_request(config, name, content)


def _target(model: str, version: str, config: Any) -> Target:
    kinds = {
        control.data_type
        for tensor in config.sequence_batching.control_input
        for control in tensor.control
        if control.kind == control.CONTROL_SEQUENCE_CORRID
    }
    text = config.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_name["TYPE_STRING"].number
    return Target(model, version, bool(config.model_transaction_policy.decoupled), text in kinds)
