"""Any sentence model in a local folder with an ONNX file, on a CPU.

What the model needs is read from its own files: pooling and prompts as sentence-transformers writes them,
the window, the tokenizer. A file that is missing is named in the error, with the option that replaces it.
"""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path
from typing import Any

from providers._common import choice, count
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import TOKEN_BUDGET, RowRunner
from providers._st_folder import POOLINGS, ModelFolder
from providers._tokenizer import open_tokenizer
from providers._transformer import TransformerEmbedder
from providers._weights import FILES
from rag_core.devices import usable_cpus
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["FILES", "load"]

INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
#: Outputs that hold token vectors and sentence vectors, as exporters name them.
TOKENS = ("last_hidden_state", "token_embeddings")
SENTENCES = ("sentence_embedding", "embedding", "embeddings")
#: This operator chooses one scale for a whole call, so that a text's vector depends on its neighbours.
WHOLE_CALL = b"DynamicQuantizeLinear"
LONGEST_WINDOW = 1 << 20


def load(
    spec: Spec,
    *,
    path: str = "",
    dtype: str = "",
    pooling: str = "",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    max_tokens: str | int = "",
    threads: str | int = "",
) -> TransformerEmbedder:
    """The model in a folder.

    Args:
        spec: the table's line; a model named in the spec string is taken for ``path``.
        path: the folder, with ``tokenizer.json`` and ``model*.onnx`` (here or in ``onnx/``).
        dtype: ``fp32``, ``fp16``, ``int8``, ``q8`` or ``q4``: chooses the file by its name; by default
            ``model.onnx``, or the only file there is.
        pooling: ``mean``, ``cls`` or ``model`` (the graph pools itself); by default the graph's own, then
            what ``modules.json`` and the pooling module's ``config.json`` say.
        query_prompt, document_prompt: put before a text; by default those of
            ``config_sentence_transformers.json``.
        max_tokens: tokens of a text that are read; by default what the model's files say.
        threads: calls at once; by default the CPUs that this process may use.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        InvalidArgumentError: an option is outside what is accepted.
        ProviderUnavailableError: a file is missing, or asks for what this provider cannot do.
        ProviderError: a file is not what it should be.
    """
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    path = path or (spec.model if spec.model != spec.name else "")
    if not path:
        raise InvalidArgumentError(f"{spec.name}: no folder; accepted: {spec.name}?path=FOLDER")
    folder = ModelFolder(spec.name, Path(path).expanduser())
    if not folder.path.is_dir():
        raise ProviderUnavailableError(spec.name, f"{folder.path} is not a folder")
    file, kind = _model_file(spec, folder.path, dtype)
    tokenizer = open_tokenizer(spec, folder.path / "tokenizer.json")
    digest, whole_call = _digest(file)
    session = open_session(spec, file, used)
    strange = {entry.name for entry in session.get_inputs()} - INPUTS
    if strange:
        raise ProviderUnavailableError(
            spec.name,
            f"{file} takes {', '.join(sorted(strange))}; accepted inputs: {', '.join(sorted(INPUTS))}",
        )
    output, how = _output(spec, session, folder, pooling)
    query, document = ("", "")
    if query_prompt is None or document_prompt is None:
        query, document = folder.prompts()
    query = query if query_prompt is None else query_prompt
    document = document if document_prompt is None else document_prompt
    fingerprint = Fingerprint(
        provider=spec.name,
        model=folder.path.resolve().name,
        revision=digest,
        dim=_width(spec, output, folder),
        dtype=kind,
        pooling=how,
        query_template=f"{query}{{text}}",
        document_template=f"{document}{{text}}",
        max_tokens=folder.window()
        if max_tokens == ""
        else count(spec.name, "max_tokens", max_tokens, 3, LONGEST_WINDOW),
        batching="one text a call" if whole_call else "any",
    )
    call = session_call(session, output.name, "" if how == "model" else how)
    runner = RowRunner(call, used, 0 if whole_call else TOKEN_BUDGET)
    runtime = runtime_info(spec, session, used, file=file.name)
    return TransformerEmbedder(fingerprint, tokenizer, runner, runtime)


def _model_file(spec: Spec, folder: Path, dtype: str) -> tuple[Path, str]:
    """The file and the dtype that its name says; ``stored`` where the name says none."""
    if dtype:
        choice(spec.name, "dtype", dtype, tuple(FILES))
    places = (folder, folder / "onnx")
    for name in FILES[dtype or "fp32"]:
        for place in places:
            if (place / name).is_file():
                return place / name, dtype or ("stored" if name == "model.onnx" else "fp32")
    there = sorted(file for place in places if place.is_dir() for file in place.glob("model*.onnx"))
    if not dtype and len(there) == 1:
        named = [kind for kind, names in FILES.items() if there[0].name in names]
        return there[0], named[0] if named else "stored"
    have = ", ".join(str(file.relative_to(folder)) for file in there) or "no model*.onnx"
    wanted = " or ".join(FILES[dtype or "fp32"])
    raise ProviderUnavailableError(
        spec.name,
        f"no {wanted} in {folder} or its onnx/",
        f"there: {have}; choose with dtype={'|'.join(FILES)}",
    )


def _digest(file: Path) -> tuple[str, bool]:
    """16 hexadecimal digits over the model's file and its external data, and whether the model quantises
    the activations of a whole call at once.
    """
    digest, whole_call = hashlib.sha256(), False
    for part in (file, file.with_name(f"{file.name}_data"), file.with_name(f"{file.name}.data")):
        if part.is_file() and part.stat().st_size:
            with part.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                digest.update(data)
                whole_call |= part == file and data.find(WHOLE_CALL) >= 0
    return digest.hexdigest()[:16], whole_call


def _output(spec: Spec, session: Any, folder: ModelFolder, pooling: str) -> tuple[Any, str]:
    """The output to take and how its rows become sentence vectors."""
    outputs = {output.name: output for output in session.get_outputs()}
    if pooling:
        choice(spec.name, "pooling", pooling, (*POOLINGS, "model"))
    sentences = [outputs[name] for name in SENTENCES if name in outputs and len(outputs[name].shape) == 2]
    if sentences and pooling in ("", "model"):
        return sentences[0], "model"
    tokens = [outputs[name] for name in TOKENS if name in outputs]
    if pooling == "model" or not tokens:
        wanted = SENTENCES if pooling == "model" else (*SENTENCES, *TOKENS)
        raise ProviderUnavailableError(
            spec.name, f"the model's outputs are {', '.join(outputs)}; accepted: {', '.join(wanted)}"
        )
    return tokens[0], pooling or folder.pooling()


def _width(spec: Spec, output: Any, folder: ModelFolder) -> int:
    width = output.shape[-1]
    if not isinstance(width, int):
        width = (folder.read("config.json") or {}).get("hidden_size")
    if not isinstance(width, int) or width < 1:
        raise ProviderUnavailableError(
            spec.name, f"neither the model nor {folder.path / 'config.json'} says how wide a vector is",
            "expected hidden_size in config.json",
        )  # fmt: skip
    return width
