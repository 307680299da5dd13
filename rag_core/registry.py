"""What can be loaded, as data: tables of :class:`Spec`, asked without importing anything heavy."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, get_args

from rag_core import devices
from rag_core.errors import InvalidArgumentError, UnknownNameError, pip_line
from rag_core.protocols import Target

__all__ = [
    "EMBEDDERS",
    "RERANKERS",
    "Availability",
    "Registries",
    "Registry",
    "Spec",
    "load_attribute",
    "load_plugins",
    "nearest",
]

TARGETS: tuple[str, ...] = get_args(Target)
PLUGIN_GROUP = "rag_core.plugins"
log = logging.getLogger("rag_core")


@dataclass(frozen=True, slots=True)
class Spec:
    """One provider on one target.

    Attributes:
        name: registry name; the same name may stand once per target.
        model: default model.
        target: ``api``, ``mlx``, ``nvidia`` or ``cpu``.
        dim: width of the vectors; 0 where it depends on the model (and for rerankers).
        requires: import names of the packages it needs.
        env: environment variables it needs, for example the key.
        extra: the extra of this distribution that installs ``requires``; empty when none is needed.
        load: ``module:attribute`` of ``load(spec, **options)``, imported only when the provider is used.
        languages: ISO codes the model is made for; empty for any language.
        note: one line for the provider table.
        auto: whether auto-detection may choose it.
        size_bytes: size of the weights on disk; 0 for a service or where it depends on the model.
        missing: ``module:attribute`` of ``missing(spec) -> str``, which tells why the weights are not at
            hand (empty when they are) without loading them; empty for a provider whose weights come with
            its packages. That of a server without a key asks the server, for half a second at most; no
            other opens a connection.
        fetch: ``module:attribute`` of ``fetch(spec, env) -> bool``, whether missing weights can be
            downloaded when the provider is loaded; empty for one that never downloads.
        export: ``module:attribute`` of ``export(spec, model, out, dtypes, opset, path) -> Exported`` (see
            :mod:`rag_core.exporting`), which writes a local model for this provider; empty for one whose
            models are not made here.
        folder: the folder that a spec string names (``path=``), for ``missing`` to look in; never in a table.
    """

    name: str
    model: str
    target: Target
    dim: int
    load: str
    requires: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    extra: str = ""
    languages: tuple[str, ...] = ()
    note: str = ""
    auto: bool = True
    size_bytes: int = 0
    missing: str = ""
    fetch: str = ""
    export: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """The answer to "can it run here?".

    Attributes:
        ok: whether it can.
        reason: why not; where ``ok``, what happens first.
        hint: what to type.
        is_ready: whether nothing has to be downloaded first.
    """

    ok: bool
    reason: str = ""
    hint: str = ""
    is_ready: bool = True

    @property
    def at_once(self) -> bool:
        """Whether it can be chosen for somebody who did not name it: it runs, and downloads nothing."""
        return self.ok and self.is_ready


class Registry:
    """Specs of one kind, in the order in which they were added."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._specs: dict[tuple[str, str], Spec] = {}

    def add(self, *specs: Spec) -> None:
        """Add ``specs``; a spec of the same name and target is replaced, so that plug-ins can override."""
        for spec in specs:
            if spec.target not in TARGETS:
                raise InvalidArgumentError(
                    f"{self.kind} {spec.name!r}: target is {spec.target!r}; accepted: {', '.join(TARGETS)}"
                )
            self._specs[spec.name, spec.target] = spec

    def names(self) -> list[str]:
        """All names, each once, in order of registration."""
        return list(dict.fromkeys(name for name, _ in self._specs))

    def __iter__(self) -> Any:
        return iter(list(self._specs.values()))

    def find(self, name: str, target: str | None = None) -> list[Spec]:
        """The specs of ``name``, one per target.

        Raises:
            UnknownNameError: no such name, or the name has no such target.
        """
        found = [spec for spec in self._specs.values() if spec.name == name]
        if not found:
            raise UnknownNameError(f"unknown {self.kind} {name!r}{nearest(name, self.names())}")
        if target is None:
            return found
        of_target = [spec for spec in found if spec.target == target]
        if not of_target:
            have = ", ".join(spec.target for spec in found)
            raise UnknownNameError(f"{self.kind} {name!r} has no target {target!r}; accepted: {have}")
        return of_target

    def availability(self, spec: Spec, env: Mapping[str, str] | None = None) -> Availability:
        """Whether ``spec`` can run here. Imports no provider; may ask a server, see ``missing``.

        A service whose answers come from recordings (:mod:`rag_core.recording`) needs no key and no package.
        """
        env = os.environ if env is None else env
        if spec.target == "api":
            from rag_core.recording import replay_from  # not needed to read a table

            if folder := replay_from(env):
                return Availability(True, f"answered from the recordings in {folder}")
        for package in spec.requires:
            if not _is_importable(package):
                return Availability(
                    False, f"package {package!r} is not installed", pip_line(spec.extra) if spec.extra else ""
                )
        for variable in spec.env:
            if not env.get(variable, "").strip():
                return Availability(False, f"{variable} is not set", f"export {variable}=…")
        if spec.target in ("mlx", "nvidia"):
            reason = devices.why_not(spec.target)
            if reason:
                return Availability(False, reason)
        if spec.missing and (reason := load_attribute(spec.missing)(spec)):
            if spec.fetch and not spec.folder and load_attribute(spec.fetch)(spec, env):
                size = f" ({spec.size_bytes / 1e9:.2g} GB)" if spec.size_bytes else ""
                return Availability(True, f"weights are downloaded at first use{size}", is_ready=False)
            is_folder = spec.target != "api"
            return Availability(
                False, reason, f"use {spec.name}?path=FOLDER, or set RAG_MODELS_DIR" if is_folder else ""
            )
        return Availability(True)

    def create(self, spec: Spec, **options: Any) -> Any:
        """Import the loader of ``spec`` and call it."""
        return load_attribute(spec.load)(spec, **options)


class Registries(NamedTuple):
    """What a plug-in's ``register`` receives."""

    embedders: Registry
    rerankers: Registry


EMBEDDERS = Registry("embedding provider")
RERANKERS = Registry("reranker")
_loaded: set[str] = set()


def load_plugins(env: Mapping[str, str] | None = None) -> None:
    """Call every ``register(registries)`` once: entry points of ``rag_core.plugins``, then those named in
    ``RAG_PLUGINS`` (``module:attribute``, comma-separated). One that fails is logged and passed over.
    """
    env = os.environ if env is None else env
    named = [(p.value, f"entry point {p.name!r}") for p in entry_points(group=PLUGIN_GROUP)]
    named += [(v.strip(), "RAG_PLUGINS") for v in env.get("RAG_PLUGINS", "").split(",") if v.strip()]
    for value, origin in named:
        if value in _loaded:
            continue
        _loaded.add(value)
        try:
            load_attribute(value)(Registries(EMBEDDERS, RERANKERS))
        except Exception as error:  # noqa: BLE001 - somebody else's code; the rest must go on working
            log.warning("plug-in %s (%s) failed: %s: %s", value, origin, type(error).__name__, error)


def load_attribute(path: str) -> Any:
    """The object that ``module:attribute`` names."""
    module, separator, attribute = path.partition(":")
    if not separator or not module or not attribute:
        raise InvalidArgumentError(f"{path!r} does not name an attribute; accepted: module:attribute")
    return getattr(importlib.import_module(module), attribute)


def nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean …?`` or the list of all names, to end an error message with."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(repr(c) for c in close)}?"
    return f"; accepted: {', '.join(sorted(names)) or 'none is registered'}"


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
