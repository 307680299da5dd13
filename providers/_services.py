"""From a spec string's options to an embedder that asks a service."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from providers._answers import value_at, width_of
from providers._api import LONG, ApiEmbedder, Model, Service, payload
from providers._common import choice, count, require, seconds
from providers._http import Transport
from providers._pacing import BURST
from providers._send import http_send, is_loopback, scrubber
from rag_core.embedding import FIRST_TEXT
from rag_core.errors import InvalidArgumentError, PermanentError, ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec
from rag_core.wire import Send

__all__ = ["base_url_of", "key_of", "load_service"]

ENGINES = ("http", "sdk")
WIDEST = 65_536
#: Texts of a request where the service takes more: requests then run side by side, and less is sent again.
BATCH = 256


def load_service(spec: Spec, service: Service, options: Mapping[str, str]) -> ApiEmbedder:
    """The embedder of ``service`` with the options of a spec string.

    Options: ``base_url``; ``dimensions`` (ask for that width); ``dim`` (the width of a model that is not
    in the table; without it one request finds out); ``long`` (error, truncate); ``batch`` (texts a
    request, by default 256 or what the service takes); ``concurrency``; ``max_tries``; ``max_wait_s``;
    ``timeout_s``; ``rpm`` and ``tpm`` (requests and tokens a minute); ``engine`` (http, sdk) where there
    is an official client; ``query_template``, ``document_template``, ``roles`` (none, input_type) and
    ``encoding`` (base64, float) where any server may stand behind ``base_url``.

    Raises:
        InvalidArgumentError: an unknown option, or a value outside what is accepted.
        ProviderUnavailableError: the key is not set.
        MissingExtraError: httpx, or the official client asked for, is not installed.
        TransientError, PermanentError: the width had to be asked for, and was not to be had.
    """
    opts = _Options(spec.name, options)
    base_url = base_url_of(spec.name, opts.take("base_url", service.url))
    key = key_of(spec.name, service.key, base_url)
    engine = opts.choose("engine", ENGINES[: 1 + (service.sdk is not None)])
    long = opts.choose("long", LONG)
    timeout_s, max_wait_s = opts.seconds("timeout_s", 60), opts.seconds("max_wait_s", 60)
    concurrency, max_tries = opts.whole("concurrency", 4, high=64), opts.whole("max_tries", 6, high=100)
    rpm, tpm = (opts.whole(name, 0, low=0, high=10**9) for name in ("rpm", "tpm"))
    limits = replace(
        service.limits, texts=opts.whole("batch", min(BATCH, service.limits.texts), high=service.limits.texts)
    )
    if tpm:  # larger requests than these could not be spread over the minute
        limits = replace(limits, tokens=min(limits.tokens or tpm, max(1, int(tpm * BURST))))
    model = _model(spec.model, service)
    asked_width, dim = (opts.whole(name, 0, low=0, high=WIDEST) for name in ("dimensions", "dim"))
    if asked_width:
        _check_width(spec, service, model, asked_width)
    templates = {"query": model.query, "document": model.document}
    if service.is_open:
        templates = {role: opts.take(f"{role}_template", text) for role, text in templates.items()}
        _check_templates(spec.name, templates)
    if service.other_roles:
        roles = opts.choose("roles", ("none", *service.other_roles))
        service = replace(service, roles=service.other_roles.get(roles, service.roles))
    extra: dict[str, Any] = {service.width: asked_width} if asked_width else {}
    if service.base64 and opts.choose("encoding", ("base64", "float")) == "base64":
        extra |= service.base64
    opts.refuse_the_rest()

    send, library = _sender(spec, service, engine, base_url, key, timeout_s, concurrency)
    transport = Transport(
        spec.name,
        base_url,
        send,
        concurrency=concurrency,
        max_tries=max_tries,
        max_wait_s=max_wait_s,
        rpm=rpm,
        tpm=tpm,
        scrub=scrubber(spec.name, key),
        key_name=service.key,
    )
    dim = asked_width or dim or model.dim or _width(spec, service, transport, extra)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        # another server may run other weights under the same name
        revision="service" if base_url == service.url else base_url,
        dim=dim,
        dtype="service",
        pooling="service",
        query_template=_shown(service.roles.get("query"), templates["query"]),
        document_template=_shown(service.roles.get("document"), templates["document"]),
        max_tokens=model.window,
    )
    runtime = {
        "library": library,
        "version": version(library),
        "url": base_url,
        "concurrency": concurrency,
        "execution_provider": "service",
    }
    return ApiEmbedder(fingerprint, service, transport, limits, long=long, extra=extra, runtime=runtime)


class _Options:
    """The options of a spec string, each taken once; what is left over is unknown."""

    def __init__(self, owner: str, options: Mapping[str, str]) -> None:
        self._owner, self._left = owner, dict(options)
        self._known: list[str] = []

    def take(self, option: str, default: str) -> str:
        self._known.append(option)
        return self._left.pop(option, default)

    def whole(self, option: str, default: int, low: int = 1, high: int = 1024) -> int:
        return count(self._owner, option, self.take(option, str(default)), low, high)

    def seconds(self, option: str, default: float) -> float:
        return seconds(self._owner, option, self.take(option, str(default)))

    def choose(self, option: str, accepted: tuple[str, ...]) -> str:
        return choice(self._owner, option, self.take(option, accepted[0]), accepted)

    def refuse_the_rest(self) -> None:
        if self._left:
            raise InvalidArgumentError(
                f"{self._owner}: unknown option {next(iter(self._left))!r}; "
                f"accepted: {', '.join(sorted(self._known))}"
            )


def base_url_of(owner: str, text: str) -> str:
    """``text`` without a final slash.

    Raises:
        InvalidArgumentError: it is no http address, or holds a user name or a query.
    """
    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_plain = False
    if not is_plain:
        raise InvalidArgumentError(
            f"{owner}: base_url is {url!r}; accepted: http://HOST[:PORT][/PATH], or https"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        # not shown: this is where people put keys
        raise InvalidArgumentError(
            f"{owner}: base_url of {parts.hostname} holds a user name, a query or a fragment; "
            "accepted: http://HOST[:PORT][/PATH], or https, and the key in its environment variable"
        )
    return url


def key_of(owner: str, variable: str, base_url: str) -> str:
    """The key in ``variable``; empty for a service without one, or on this machine.

    Raises:
        ProviderUnavailableError: it is not set.
        InvalidArgumentError: it holds a character that no HTTP header can carry.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not key and not is_loopback(base_url):
        raise ProviderUnavailableError(owner, f"{variable} is not set", f"export {variable}=…")
    strange = next((i for i, char in enumerate(key) if not 32 < ord(char) < 127), None)
    if strange is not None:
        raise InvalidArgumentError(
            f"{owner}: character {strange + 1} of {variable} cannot stand in an HTTP header; accepted: ASCII "
            "letters, digits and signs, without blanks"
        )
    return key


def _model(name: str, service: Service) -> Model:
    """The table's line of ``name``, with or without a tag behind a colon."""
    return service.models.get(name) or service.models.get(name.partition(":")[0]) or Model(0)


def _check_width(spec: Spec, service: Service, model: Model, asked: int) -> None:
    accepted: Sequence[int] = model.dims or ((model.dim,) if model.dim else ())
    if not service.width:
        raise InvalidArgumentError(
            f"{spec.name}: the service has no option for the width; leave out dimensions"
        )
    if accepted and asked not in accepted:
        shown = (
            f"{accepted[0]} to {accepted[-1]}"
            if isinstance(accepted, range)
            else ", ".join(map(str, accepted))
        )
        raise InvalidArgumentError(
            f"{spec.name}: option dimensions is {asked}; accepted for {spec.model}: {shown}"
        )


def _check_templates(owner: str, templates: Mapping[str, str]) -> None:
    for role, template in templates.items():
        if "{text}" not in template:
            raise InvalidArgumentError(
                f"{owner}: option {role}_template is {template!r}; accepted: a text with {{text}} in it"
            )


def _sender(
    spec: Spec, service: Service, engine: str, base_url: str, key: str, timeout_s: float, concurrency: int
) -> tuple[Send, str]:
    """What sends, and the distribution it comes from."""
    if engine == "sdk" and service.sdk:
        package, make = service.sdk
        official = require(replace(spec, extra=spec.name), package)
        return make(official, base_url, key, timeout_s), package
    return http_send(spec, base_url, key, timeout_s, concurrency), "httpx"


def _width(spec: Spec, service: Service, transport: Transport, extra: Mapping[str, Any]) -> int:
    """The width of the vectors of a model that no table knows, found by one request."""
    asked = payload(service, spec.model, [FIRST_TEXT], "document", LONG[0], extra)
    width = width_of(value_at(transport.post(service.path, asked, texts=1), service.rows))
    if not width:
        raise PermanentError(f"{spec.name}: the answer of {spec.model} holds no vector; set the option dim")
    return width


def _shown(fields: Mapping[str, Any] | None, template: str) -> str:
    """What a fingerprint says of a role: the service's parameter, or the text that is sent."""
    return "&".join(f"{name}={value}" for name, value in fields.items()) if fields else template
