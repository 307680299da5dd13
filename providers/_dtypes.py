"""Which number format to run a model in: from kept measurements, or measured on the spot and remembered.

``data/dtypes.json`` holds what ``benchmarks/dtypes.py`` printed: per engine, target and CPU features the
speed of each dtype as a ratio to fp32 and its least cosine to fp32 on :data:`providers._sentences.SENTENCES`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Generic, Protocol, TypeVar

import numpy as np

from providers._cache import cache_folder, write_whole
from providers._sentences import SENTENCES
from rag_core.devices import usable_cpus
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.protocols import Role, Vectors

__all__ = [
    "AUTO",
    "DOT_PRODUCTS",
    "LEAST_COSINE",
    "TEXTS",
    "Choice",
    "Measured",
    "agreement",
    "automatic",
    "choose",
    "cpu_features",
    "default_dtype",
    "machine",
    "measurements",
]

log = logging.getLogger("rag_core")
AUTO = "auto"
FP32, FP16 = "fp32", "fp16"
#: Least cosine to fp32 of every sentence for a dtype to be chosen on anybody's behalf.
LEAST_COSINE = 0.999
#: CPU features, the best first, each with all below it: matrix tiles of 8-bit and bf16 numbers, bf16 and
#: 8-bit dot products, wide vectors.
FEATURES = {
    "amx": {"amx_int8", "amx_bf16"},
    "bf16": {"avx512_bf16"},
    "vnni": {"avx512_vnni", "avx_vnni"},
    "avx512": {"avx512f"},
}
OTHER = "other"
#: CPUs whose 8-bit products add up without overflow.
DOT_PRODUCTS = ("amx", "bf16", "vnni")
#: A ratio to fp32 that is no slower: two runs of one setting differ by as much.
NO_SLOWER = 0.95
TABLE = Path(__file__).parent / "data" / "dtypes.json"
REMEASURE = "RAG_DTYPE_REMEASURE"
#: A fourth of the sentences: enough to tell dtypes apart, and read within a few hundred milliseconds.
TEXTS = SENTENCES[::4]
#: Times each candidate is timed; the best counts, for another process can only slow one down.
ROUNDS = 3


class Embedder(Protocol):
    """What is measured."""

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Unit vectors, float32 (n, dim)."""
        ...


E = TypeVar("E", bound=Embedder)


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table.

    Attributes:
        engine: ``onnxruntime`` or ``torch``.
        target: ``cpu``, ``nvidia`` or ``mlx``.
        features: of the CPU, one of ``amx``, ``bf16``, ``vnni``, ``avx512``, ``other``; of a
            GPU, its name.
        dtype: what was measured.
        bulk, query: passages/s and one query's speed as ratios to fp32.
        min_cosine: least cosine to fp32.
        where: model, machine and versions.
        is_equivalent: results were shown to be fp32's equals although ``min_cosine`` is below
            :data:`LEAST_COSINE`.
    """

    engine: str
    target: str
    features: str
    dtype: str
    bulk: float
    query: float
    min_cosine: float
    where: str
    is_equivalent: bool = False

    @property
    def agrees(self) -> bool:
        """Whether this dtype may be chosen for somebody who did not name it."""
        return self.min_cosine >= LEAST_COSINE or self.is_equivalent


@functools.cache
def measurements() -> tuple[Measured, ...]:
    """The kept table."""
    return tuple(Measured(**line) for line in json.loads(TABLE.read_text(encoding="utf-8"))["measured"])


@functools.cache
def _cpu_info(file: Path = Path("/proc/cpuinfo")) -> tuple[str, frozenset[str]]:
    """Name and flags of the first CPU; the flags are empty where the system does not list them."""
    values: dict[str, str] = {}
    try:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            values.setdefault(key.strip().lower(), value.strip())
    except OSError:
        pass
    flags = values.get("flags", values.get("features", ""))
    return values.get("model name", platform.processor()), frozenset(flags.split())


def cpu_features(flags: frozenset[str] | None = None) -> str:
    """``amx``, ``bf16``, ``vnni``, ``avx512`` or ``other``, by ``flags`` (this CPU's by default)."""
    found = _cpu_info()[1] if flags is None else flags
    return next((name for name, wanted in FEATURES.items() if wanted & found), OTHER)


def default_dtype(engine: str, target: str, features: str, table: Sequence[Measured] | None = None) -> str:
    """The dtype that the measurements speak for.

    Those of a CPU's own features count, or where there are none, of the next lesser ones, which it has too.
    A dtype must agree with fp32 on every model measured, and be no slower on any; the best product of its
    least ratios wins. Without a measurement: ``fp16`` on a device, ``fp32`` on a CPU, where ``fp16`` is
    never the answer.
    """
    lines = [line for line in (measurements() if table is None else table) if line.engine == engine]
    lines = [line for line in lines if line.target == target]
    if target == "cpu":
        names = [*FEATURES, OTHER]
        below = names[names.index(features) :]
        nearest = next((name for name in below if any(line.features == name for line in lines)), OTHER)
        lines = [line for line in lines if line.features == nearest and line.dtype != FP16]
    best, gain = FP32 if target == "cpu" else FP16, 1.0
    for dtype in dict.fromkeys(line.dtype for line in lines):
        known = [line for line in lines if line.dtype == dtype]
        bulk, query = min(line.bulk for line in known), min(line.query for line in known)
        if all(line.agrees for line in known) and min(bulk, query) >= NO_SLOWER and bulk * query > gain:
            best, gain = dtype, bulk * query
    return best


@dataclass(frozen=True, slots=True)
class Choice(Generic[E]):
    """What was chosen and why.

    Attributes:
        dtype: the choice.
        why: one line with the figures.
        seconds: dtype -> best time of the texts at once and one of them alone.
        cosines: dtype -> least cosine to fp32.
        embedder: the loaded one.
    """

    dtype: str
    why: str
    seconds: dict[str, float]
    cosines: dict[str, float]
    embedder: E


def agreement(vectors: Vectors, reference: Vectors) -> float:
    """Least cosine between the rows of two arrays of unit vectors; NaN counts as none at all."""
    cosines = np.einsum("ij,ij->i", vectors, reference, dtype=np.float64)
    return float(np.nan_to_num(cosines, nan=-1.0).min())


def choose(
    candidates: Mapping[str, Callable[[], E]],
    texts: Sequence[str] = TEXTS,
    clock: Callable[[], float] = perf_counter,
    least: float = LEAST_COSINE,
) -> Choice[E]:
    """The fastest candidate whose vectors agree with those of ``fp32``.

    Each is loaded and read ``texts`` once for its vectors; those that agree are then timed in turns.

    Args:
        candidates: dtype -> its loader; ``fp32`` must be among them.
        texts: read at once, and the first of them alone as a query.
        clock: seconds.
        least: cosine that every text must reach.

    Raises:
        ProviderUnavailableError: fp32 cannot be loaded: there is nothing to compare with.
    """
    loaded: dict[str, E] = {FP32: candidates[FP32]()}
    reference = loaded[FP32].embed(texts)
    cosines, left_out = {FP32: 1.0}, []
    for dtype, load in candidates.items():
        if dtype == FP32:
            continue
        try:
            embedder = load()
            cosines[dtype] = agreement(embedder.embed(texts), reference)
        except (ProviderUnavailableError, ProviderError) as error:
            left_out.append(f"{dtype} cannot run ({error})")
            continue
        if cosines[dtype] < least:
            left_out.append(f"{dtype} disagrees (least cosine {cosines[dtype]:.4f}, accepted {least:g})")
        else:
            loaded[dtype] = embedder
    seconds = dict.fromkeys(loaded, float("inf"))
    for _ in range(ROUNDS):
        for dtype, embedder in loaded.items():
            started = clock()
            embedder.embed(texts)
            embedder.embed(texts[:1], role="query")
            seconds[dtype] = min(seconds[dtype], clock() - started)
    best = min(seconds, key=lambda dtype: seconds[dtype])
    times = ", ".join(f"{dtype} {1000 * value:.1f} ms" for dtype, value in seconds.items())
    return Choice(best, "; ".join([f"fastest of {times}", *left_out]), seconds, cosines, loaded[best])


def machine() -> str:
    """12 hexadecimal digits over what makes this machine fast or slow: CPU, its features, usable CPUs."""
    name, flags = _cpu_info()
    told = json.dumps([platform.machine(), name, sorted(flags), usable_cpus()])
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def automatic(
    name: str,
    identity: Sequence[str],
    candidates: Mapping[str, Callable[[], E]],
    clock: Callable[[], float] = perf_counter,
) -> E:
    """The embedder of :func:`choose`, or of what it chose last time on this machine.

    The memory is a file in the cache folder, named by ``name``, the machine and ``identity`` (digest of the
    weights, engine, versions: whatever makes a measurement stale). ``RAG_DTYPE_REMEASURE=1`` ignores it.

    Raises:
        ProviderUnavailableError: fp32 cannot be loaded, or what was chosen last time.
    """
    told = hashlib.sha256(json.dumps([machine(), *identity, sorted(candidates)]).encode()).hexdigest()[:16]
    file = cache_folder() / f"dtype-{name}-{told}.json"
    if os.environ.get(REMEASURE, "").strip() not in ("1", "true", "yes"):
        known = _remembered(file)
        if known in candidates:
            log.info("%s: dtype %s, measured here before; %s=1 measures again", name, known, REMEASURE)
            return candidates[known]()
    found = choose(candidates, clock=clock)
    log.info("%s: dtype %s, %s", name, found.dtype, found.why)
    kept = {"dtype": found.dtype, "why": found.why, "seconds": found.seconds, "cosines": found.cosines}
    try:
        write_whole(file, json.dumps(kept, indent=1, sort_keys=True).encode())
    except OSError as error:
        log.warning("%s: dtype is measured again at every start: %s; set RAG_CACHE_DIR", name, error)
    return found.embedder


def _remembered(file: Path) -> str:
    """The dtype in ``file``; empty where there is none, or the file is not what was written."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    dtype = found.get("dtype") if isinstance(found, dict) else None
    return dtype if isinstance(dtype, str) else ""
