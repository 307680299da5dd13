"""What one sweep does: its settings, a plain value, and the variants that they ask for."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.datasets import Dataset
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError, UnknownNameError
from rag_core.factory import SpecString, resolve
from rag_core.registry import EMBEDDERS, RERANKERS
from rag_core.types import Document

__all__ = ["WHOLE_CORPUS", "SweepSpec", "Variant", "chosen_documents", "numbers", "plan_variants", "words"]

#: Up to this many documents the whole corpus is embedded for agreement, so that nDCG can be compared too.
WHOLE_CORPUS = 500
#: Settings that say which variants take part and change the figures of none.
FREE_SETTINGS = ("data", "providers", "dtypes", "targets", "rerankers")


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Settings of a sweep.

    Attributes:
        data: name or path of the data set.
        providers: spec strings; each times ``targets`` times ``dtypes`` is a variant.
        batch_sizes: texts a call; empty for one call with everything, batched as the provider does.
        dtypes: values of the option ``dtype``; empty for what the spec strings say.
        targets: targets; empty for what the spec strings say.
        texts: documents embedded in a timed round.
        rounds: timed rounds of every batch size.
        query_samples: queries timed one at a time.
        pools: candidates given to the rerankers.
        rerankers: spec strings.
        threads: CPU threads of a provider; 0 for the CPUs really available.
        seed: of the order of the documents and of the bootstrap.
    """

    data: str
    providers: tuple[str, ...]
    batch_sizes: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    texts: int = 256
    rounds: int = 3
    query_samples: int = 40
    pools: tuple[int, ...] = ()
    rerankers: tuple[str, ...] = ()
    threads: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("texts", 2), ("rounds", 1), ("query_samples", 1), ("threads", 0)):
            if getattr(self, name) < least:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; accepted: {least} or more")
        if bool(self.pools) != bool(self.rerankers):
            raise InvalidArgumentError(
                "a sweep of the candidate pool needs both --candidate-pool and --reranker, for example: "
                "--candidate-pool 10,20,50 --reranker maxsim"
            )
        if not self.providers and not self.pools:
            raise InvalidArgumentError("nothing to sweep: name a provider, for example --provider e5-small")

    @property
    def sweeps_speed(self) -> bool:
        """Whether providers are measured; not when the candidate pool alone is asked for."""
        return bool(self.batch_sizes or self.dtypes or self.targets or not self.pools)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SweepSpec:
        """The inverse of :meth:`as_dict`."""
        made: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**made)

    @property
    def pool_provider(self) -> str:
        """The provider of the frozen pool's vector leg: the first one, ``fake`` without any."""
        return self.providers[0] if self.providers else "fake"

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over the settings that change a figure."""
        chosen = {name: value for name, value in self.as_dict().items() if name not in FREE_SETTINGS}
        if self.pools:
            chosen["pool_provider"] = self.pool_provider
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Variant:
    """One provider on one target in one dtype.

    Attributes:
        label: its spec string, target included.
        group: the spec string without target and dtype: variants of a group must agree.
        target: where it runs.
        dtype: as asked for; empty where the provider chooses.
    """

    label: str
    group: str
    target: str
    dtype: str


def plan_variants(spec: SweepSpec) -> tuple[list[Variant], list[tuple[Variant, str]]]:
    """The variants in the order of measuring, and those that cannot run here with the reason.

    Within a group fp32 comes first, and the CPU before other targets: the others are held against it.

    Raises:
        UnknownNameError, SpecStringError: a provider, reranker or target does not exist.
    """
    for text in spec.rerankers:
        RERANKERS.find(SpecString.parse(text).name)
    if not spec.sweeps_speed:
        EMBEDDERS.find(SpecString.parse(spec.pool_provider).name)
        return [], []
    found: dict[Variant, str] = {}
    for text in spec.providers:
        parsed = SpecString.parse(text)
        EMBEDDERS.find(parsed.name)
        for target in spec.targets or (parsed.target,):
            for dtype in spec.dtypes or (parsed.options.get("dtype", ""),):
                variant, reason = _variant(parsed, target, dtype, swept=bool(spec.targets))
                found.setdefault(variant, reason)
    groups = list(dict.fromkeys(variant.group for variant in found))
    order = sorted(found, key=lambda v: (groups.index(v.group), v.dtype != "fp32", v.target != "cpu"))
    runnable = [variant for variant in order if not found[variant]]
    return runnable, [(variant, found[variant]) for variant in order if found[variant]]


def _variant(parsed: SpecString, target: str, dtype: str, swept: bool) -> tuple[Variant, str]:
    """The variant and why it cannot run here; an empty reason when it can."""
    options = {name: value for name, value in parsed.options.items() if name != "dtype"}
    group = str(replace(parsed, target="", options=options))
    if dtype:
        options["dtype"] = dtype
    wanted = str(SpecString.parse(str(replace(parsed, target=target, options=options))))
    reason = ""
    try:
        target = resolve(EMBEDDERS, wanted)[0].target
    except ProviderUnavailableError as error:
        target, reason = target or EMBEDDERS.find(parsed.name)[0].target, str(error)
    except UnknownNameError as error:
        if not swept:
            raise
        reason = str(error)  # of several targets swept, not every provider has each
    return Variant(str(replace(parsed, target=target, options=options)), group, target, dtype), reason


def chosen_documents(dataset: Dataset, spec: SweepSpec) -> tuple[list[Document], int]:
    """The documents to embed and how many of them, from the front, are timed.

    Non-empty documents in one pseudo-random order, so that every batch mixes lengths. Of a corpus of up
    to :data:`WHOLE_CORPUS` documents those beyond ``spec.texts`` follow, for agreement alone.
    """
    documents = [document for document in dataset.documents if not document.is_empty]
    random.Random(spec.seed).shuffle(documents)
    timed = min(spec.texts, len(documents))
    return (documents if len(documents) <= WHOLE_CORPUS else documents[:timed]), timed


def numbers(option: str, text: str) -> tuple[int, ...]:
    """``8,1,8`` as (1, 8): whole numbers from 1, each once, ascending.

    Raises:
        InvalidArgumentError: something else stands there.
    """
    parts: Iterable[str] = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [part for part in parts if not (part.isascii() and part.isdigit() and int(part) >= 1)]
    if wrong:
        raise InvalidArgumentError(
            f"{option} holds {wrong[0]!r}; accepted: whole numbers from 1, separated by commas"
        )
    return tuple(sorted({int(part) for part in parts}))


def words(text: str) -> tuple[str, ...]:
    """``fp32, int8`` as (fp32, int8), each once, in the order given."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
