"""Where the files of a local model are: a named folder, the places models are kept in, or the model hub.

Without a network, or in offline mode, a model that is not on disk is a
:class:`ProviderUnavailableError` at once, with every folder that was looked in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from providers._hub import fetch, is_hub_name, may_fetch
from providers._models import CARDS
from rag_core.errors import ProviderUnavailableError
from rag_core.registry import Spec, load_attribute

__all__ = [
    "ANY_MODEL",
    "CONFIG",
    "TENSORS",
    "TOKENIZER",
    "find_folder",
    "missing",
    "transformer",
    "why_missing",
]

#: Model name of a provider that takes whatever `path=` holds.
ANY_MODEL = "any"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
#: Files with weights that torch and MLX read, the first one found counts.
TENSORS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
#: What is fetched from the hub for them: settings, tokenizer and one form of the weights.
PATTERNS = ("*.json", "*.txt", "*.model", "1_Pooling/*", "2_Normalize/*", "model*.safetensors")
#: Fetched where a repository has no safetensors.
BIN_PATTERNS = (*PATTERNS[:-1], "pytorch_model*.bin")

#: Says whether a folder will do: raises FileNotFoundError with the reason when it will not.
Accept = Callable[[Path], object]


def transformer(folder: Path) -> Path:
    """The file with the weights of a Hugging Face or sentence-transformers folder.

    Raises:
        FileNotFoundError: why ``folder`` will not do.
    """
    if not folder.is_dir():
        raise FileNotFoundError("no such folder")
    for name in (CONFIG, TOKENIZER):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"no {name}")
    for name in TENSORS:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no {TENSORS[0]} and no {TENSORS[-1]}")


def find_folder(
    spec: Spec,
    model: str,
    path: str = "",
    accept: Accept = transformer,
    patterns: Sequence[Sequence[str]] = (PATTERNS, BIN_PATTERNS),
    what: str = f"{CONFIG}, {TOKENIZER} and {TENSORS[0]}",
    env: Mapping[str, str] | None = None,
) -> Path:
    """The folder of ``model``: ``path`` if given, else the first of ``RAG_MODELS_DIR``, of the packages
    that ship it and of the hub's cache that will do, else a download.

    ``RAG_MODELS_DIR`` holds folders, separated as in ``PATH``; in each, ``owner/name``, ``owner--name``
    and ``name`` are looked for.

    Args:
        spec: whose name errors begin with.
        model: name on the hub, ``owner/name``, or a folder's path.
        path: a folder to look in and nowhere else.
        accept: whether a folder will do.
        patterns: sets of names to fetch; the first set whose files make an acceptable folder counts.
        what: the files that are needed, for the message.
        env: environment; ``os.environ`` by default.

    Raises:
        ProviderUnavailableError: nowhere; all folders stand in the message, with the reason of each.
    """
    env = os.environ if env is None else env
    looked = []
    for folder in [Path(path).expanduser()] if path else places(model, env):
        try:
            accept(folder)
        except FileNotFoundError as error:
            looked.append(f"{folder} ({error})")
        else:
            return folder
    if not path and may_fetch(model, env):
        for names in patterns:
            folder = fetch(spec, model, names, looked, env)
            try:
                accept(folder)
            except FileNotFoundError as error:
                looked.append(f"{folder} ({error})")
            else:
                return folder
    hint = f"accepted: path=FOLDER with {what}" + ("" if path else ", or RAG_MODELS_DIR")
    raise ProviderUnavailableError(
        spec.name, f"no weights of {model}; looked in: {'; '.join(looked) or 'no folder is known'}", hint
    )


def missing(spec: Spec) -> str:
    """Why the weights of ``spec`` for torch or MLX are not at hand; empty when they are."""
    return why_missing(spec, transformer)


def why_missing(spec: Spec, accept: Accept) -> str:
    """Why no folder of ``spec.model`` that ``accept`` accepts is on disk; empty when there is one.

    A folder that the spec string names is the only one looked in. Reads no file but their names, opens
    no connection.
    """
    if spec.folder:
        try:
            accept(Path(spec.folder).expanduser())
        except FileNotFoundError as error:
            return f"{spec.folder} will not do ({error})"
        return ""
    if spec.model == ANY_MODEL:
        return "no folder is named"
    looked = []
    for folder in places(spec.model, os.environ):
        try:
            accept(folder)
        except FileNotFoundError:
            looked.append(str(folder))
        else:
            return ""
    return f"no weights of {spec.model}; looked in: {', '.join(looked)}"


def places(model: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Folders that may hold ``model``, in the order they are tried; for a path, that folder alone."""
    if not is_hub_name(model) and (model[:1] in (".", "~") or "/" in model or os.sep in model):
        yield Path(model).expanduser()
        return
    # the hub renamed ms-marco-MiniLM-L-6-v2 to …-L6-v2; an older cache has the older name
    names = list(dict.fromkeys((model, model.replace("-L-", "-L"))))
    for name in names:
        for root in filter(None, env.get("RAG_MODELS_DIR", "").split(os.pathsep)):
            kept = Path(root).expanduser()
            yield kept / name
            if "/" in name:
                yield kept / name.replace("/", "--")
                yield kept / name.rpartition("/")[2]
    card = CARDS.get(model)
    if card is not None and card.package:
        packaged: Path | None = load_attribute(card.package)()
        if packaged is not None:
            yield packaged
    home = Path(env.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for name in names:
        repository = cache / f"models--{name.replace('/', '--')}"
        snapshots = repository / "snapshots"
        try:
            yield snapshots / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        except OSError:
            yield from sorted(snapshots.iterdir()) if snapshots.is_dir() else [repository]
