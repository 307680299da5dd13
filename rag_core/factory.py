"""From a name, a spec string or the environment to a provider that works here."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast
from urllib.parse import parse_qsl, urlencode

from rag_core.devices import is_apple_silicon
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError, SpecStringError
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.registry import EMBEDDERS, RERANKERS, TARGETS, Registry, Spec, load_plugins

__all__ = [
    "NOTHING_AVAILABLE",
    "SpecString",
    "default_spec",
    "get_default_embedder",
    "get_default_reranker",
    "get_embedder",
    "get_reranker",
    "provider_order",
    "resolve",
]

log = logging.getLogger("rag_core")
GRAMMAR = "name[:model][@target][?option=value&…]"
#: Kind of a registry -> environment variable that chooses from it.
_VARIABLES = {EMBEDDERS.kind: "RAG_EMBED_PROVIDER", RERANKERS.kind: "RAG_RERANK_PROVIDER"}
NOTHING_AVAILABLE = (
    "no embedding provider is available: using the fake embedder, whose vectors mean nothing; "
    "run: bench providers"
)


@dataclass(frozen=True, slots=True)
class SpecString:
    """A parsed ``name[:model][@target][?option=value&…]``; ``str()`` gives it back."""

    name: str
    model: str = ""
    target: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SpecString:
        """Parse ``text``, for example ``e5-small@cpu?threads=1`` or ``ollama:nomic-embed-text:v1.5``.

        Raises:
            SpecStringError: ``text`` does not follow the grammar, or the target is unknown.
        """
        head, question, query = text.strip().partition("?")
        head, at, target = head.rpartition("@") if "@" in head else (head, "", "")
        name, colon, model = head.partition(":")
        problem = ""
        if not name:
            problem = "the name is empty"
        elif colon and not model:
            problem = "the model is empty"
        elif at and target not in TARGETS:
            problem = f"the target is {target!r} (accepted: {', '.join(TARGETS)})"
            if "/" in target or os.sep in target:
                problem += "; a path that holds '@' needs its target behind it, as in st:PATH@cpu"
        elif question and not query:  # parse_qsl takes it for no options on some Python versions
            problem = "there are no options after '?'"
        options: dict[str, str] = {}
        if question and not problem:
            try:
                options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
            except ValueError:
                problem = f"the options are {query!r}"
        if problem:
            raise SpecStringError(f"spec string {text!r}: {problem}; accepted: {GRAMMAR}")
        return cls(name, model, target, options)

    def __str__(self) -> str:
        return (
            self.name
            + (f":{self.model}" if self.model else "")
            + (f"@{self.target}" if self.target else "")
            + (f"?{urlencode(self.options)}" if self.options else "")
        )


def provider_order(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Targets in the order auto-detection tries them: ``RAG_PROVIDER_ORDER``, else api, mlx, nvidia, cpu.

    Without Apple Silicon ``mlx`` is left out unless the variable names it: MLX runs elsewhere too, where it
    serves to check its results (on a CPU a product of matrices takes about 17 times as long as numpy's).

    Raises:
        InvalidArgumentError: the variable names an unknown target.
    """
    value = (os.environ if env is None else env).get("RAG_PROVIDER_ORDER", "").strip()
    named = tuple(part.strip() for part in value.split(",") if part.strip())
    order = named or tuple(t for t in TARGETS if t != "mlx" or is_apple_silicon())
    unknown = [target for target in order if target not in TARGETS]
    if unknown:
        raise InvalidArgumentError(
            f"RAG_PROVIDER_ORDER names {unknown[0]!r}; accepted: {', '.join(TARGETS)}, separated by commas"
        )
    return order


def resolve(registry: Registry, text: str, env: Mapping[str, str] | None = None) -> tuple[Spec, SpecString]:
    """The spec that ``text`` names, on its target or on the first one of the order that is available.

    Raises:
        UnknownNameError: no such name or target.
        ProviderUnavailableError: it cannot run here; the reason of every target stands in the message.
    """
    load_plugins(env)
    parsed = SpecString.parse(text)
    specs = [_asked(spec, parsed) for spec in registry.find(parsed.name, parsed.target or None)]
    order = provider_order(env)
    specs.sort(key=lambda spec: order.index(spec.target) if spec.target in order else len(order))
    refusals = []
    for spec in specs:
        answer = registry.availability(spec, env)
        if answer.ok:
            return spec, parsed
        refusals.append((spec, answer))
    reasons = "; ".join(f"{spec.target}: {answer.reason}" for spec, answer in refusals)
    hint = next((answer.hint for _, answer in refusals if answer.hint), "")
    raise ProviderUnavailableError(parsed.name, reasons, hint)


def _asked(spec: Spec, parsed: SpecString) -> Spec:
    """``spec`` with the model and the folder that the spec string names.

    A server at an address that it names is not looked for here: the loader does, and knows whether that
    server needs a key.
    """
    is_server = "base_url" in parsed.options
    return replace(
        spec,
        model=parsed.model or spec.model,
        folder=parsed.options.get("path", ""),
        missing="" if is_server else spec.missing,
        env=() if is_server else spec.env,
    )


def get_embedder(text: str, env: Mapping[str, str] | None = None) -> EmbedProvider:
    """Load the embedding provider that the spec string names.

    Raises:
        SpecStringError, UnknownNameError, ProviderUnavailableError: see :func:`resolve`.
        InvalidArgumentError: the provider has no such option, or refuses its value.
    """
    return cast(EmbedProvider, _create(EMBEDDERS, text, env))


def get_reranker(text: str, env: Mapping[str, str] | None = None) -> Reranker:
    """Load the reranker that the spec string names; errors as in :func:`get_embedder`."""
    return cast(Reranker, _create(RERANKERS, text, env))


def get_default_embedder(env: Mapping[str, str] | None = None) -> EmbedProvider:
    """``RAG_EMBED_PROVIDER`` if set, else the first available provider, else ``fake`` with a warning."""
    return cast(EmbedProvider, _default(EMBEDDERS, "fake", env))


def get_default_reranker(env: Mapping[str, str] | None = None) -> Reranker:
    """``RAG_RERANK_PROVIDER`` if set, else the first available reranker, else ``noop``."""
    return cast(Reranker, _default(RERANKERS, "noop", env))


def _create(registry: Registry, text: str, env: Mapping[str, str] | None) -> object:
    spec, parsed = resolve(registry, text, env)
    try:
        return registry.create(spec, **parsed.options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InvalidArgumentError(
            f"{registry.kind} {text!r}: {str(error).partition(') ')[2] or error}"
        ) from error


def default_spec(registry: Registry, env: Mapping[str, str] | None = None) -> str:
    """The spec string that the environment sets or auto-detection chooses; empty where nothing is at hand.

    Raises:
        InvalidArgumentError: see :func:`provider_order`.
    """
    env = os.environ if env is None else env
    chosen = env.get(_VARIABLES[registry.kind], "").strip()
    if chosen:
        return chosen
    spec = _detected(registry, env)
    return f"{spec.name}@{spec.target}" if spec else ""


def _detected(registry: Registry, env: Mapping[str, str]) -> Spec | None:
    load_plugins(env)
    for target in provider_order(env):
        for spec in registry:
            if spec.target == target and spec.auto and registry.availability(spec, env).at_once:
                log.info("%s: %s@%s chosen by auto-detection", registry.kind, spec.name, spec.target)
                return cast(Spec, spec)
    return None


def _default(registry: Registry, last: str, env: Mapping[str, str] | None) -> object:
    env = os.environ if env is None else env
    chosen = env.get(_VARIABLES[registry.kind], "").strip()
    if chosen:
        return _create(registry, chosen, env)
    if (spec := _detected(registry, env)) is not None:
        return registry.create(spec)
    if last == "fake":
        log.warning(NOTHING_AVAILABLE)
    return _create(registry, last, env)
