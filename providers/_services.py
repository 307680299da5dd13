"""From a spec string's options to an embedder that asks a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from providers._answers import value_at, width_of
from providers._api import LONG, ApiEmbedder, Model, Service, payload
from providers._http import Transport
from providers._wiring import Options, Wiring, base_url_of, key_of
from rag_core.embedding import FIRST_TEXT
from rag_core.errors import InvalidArgumentError, PermanentError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["base_url_of", "key_of", "load_service"]

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
    opts = Options(spec.name, options)
    batch = min(BATCH, service.limits.texts)
    wiring = Wiring.read(spec, opts, service.url, service.key, service.limits, service.sdk, batch)
    long = opts.choose("long", LONG)
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

    transport, runtime = wiring.open()
    dim = asked_width or dim or model.dim or _width(spec, service, transport, extra)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        revision=wiring.revision,
        dim=dim,
        dtype="service",
        pooling="service",
        query_template=_shown(service.roles.get("query"), templates["query"]),
        document_template=_shown(service.roles.get("document"), templates["document"]),
        max_tokens=model.window,
    )
    return ApiEmbedder(
        fingerprint, service, transport, wiring.limits, long=long, extra=extra, runtime=runtime
    )


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
