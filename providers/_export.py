"""A local torch model as a folder of ONNX files: sentence models and classifiers of pairs.

torch traces the transformer once (``torch.onnx.export``, the exporter by tracing: the one by dynamo breaks
on some outputs' names), onnxruntime's tools make the other dtypes from that file, and every file is
compared with the torch model before the folder appears. Pooling, prompts and window stay in the model's
own JSON files, which come along.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert_onnx import BLOCK, CONTRIB, INT8_ACTIVATIONS, Blocks, blocks_of, encoder_graph
from providers._bert_weights import is_bert_like, read_bert, read_config
from providers._common import choice, count, require
from providers._folders import ANY_MODEL, CONFIG, TOKENIZER, find_folder, transformer
from providers._models import CARDS
from providers._onnx import open_session, pool, session_call
from providers._onnx_write import FLOAT
from providers._sentences import SENTENCES
from providers._st_folder import ModelFolder
from rag_core.errors import InvalidArgumentError, ProviderError, ProviderUnavailableError
from rag_core.exporting import Exported, ExportedFile
from rag_core.progress import tell
from rag_core.registry import Spec

__all__ = ["DEFAULT_DTYPES", "FILES", "export"]

#: dtype -> file, as the `onnx` provider looks for it.
FILES = {
    "fp32": "model.onnx",
    "fp16": "model_fp16.onnx",
    "int8": "model_int8.onnx",
    "q8": "model_q8.onnx",
}
DEFAULT_DTYPES = ("fp32", "fp16", "int8")
#: Least cosine to the torch model of every sentence; of a classifier, Spearman's correlation of its scores.
LEAST = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.999, "q8": 0.999}
LEAST_SPEARMAN = 0.99
OLDEST_OPSET, NEWEST_OPSET = 14, 20
#: What comes along, beside weights.
SETTINGS = ("*.json", "*.txt", "*.model", "1_Pooling/*.json")
#: Weights' tables of contents, which would name files that are not there.
NOT_SETTINGS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
PROMPTS = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
#: Queries and candidates on which a classifier's files are compared.
QUERIES, CANDIDATES = SENTENCES[1:8:2], SENTENCES[::4]
Outputs = NDArray[np.float32]
Row = tuple[list[int], list[int]]


def export(
    spec: Spec, model: str, out: Path, dtypes: Sequence[str] = DEFAULT_DTYPES, opset: int = 17, path: str = ""
) -> Exported:
    """Write ``model`` to the folder ``out``, whole or not at all.

    Args:
        spec: the table's line that carries this hook.
        model: a folder, or ``owner/name``, looked for as the provider of local models does.
        out: the folder to make; it must not exist, or be empty.
        dtypes: among those of :data:`FILES`.
        opset: version of ONNX's operators, 14 to 20.
        path: the folder of ``model``, where it is known.

    Raises:
        MissingExtraError: torch, transformers, onnx, onnxruntime or tokenizers is not installed.
        InvalidArgumentError: a dtype or opset that is not accepted, or ``out`` has something in it or cannot
            be made.
        ProviderUnavailableError: the model is nowhere, or of a kind that cannot be exported.
        ProviderError: the exporter failed.
        OSError: the disk is full.
    """
    wanted = tuple(dict.fromkeys(choice("export", "--dtype", dtype, tuple(FILES)) for dtype in dtypes))
    if not wanted:
        raise InvalidArgumentError(f"export: no --dtype; accepted: {', '.join(FILES)}")
    opset = count("export", "--opset", opset, OLDEST_OPSET, NEWEST_OPSET)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidArgumentError(f"export: {out} exists and is not an empty folder; choose another --out")
    spec = replace(spec, name="export", extra="local")
    for package in ("torch", "transformers", "onnx", "onnxruntime", "tokenizers"):
        require(spec, package)
    is_folder = Path(model).expanduser().is_dir()
    folder = find_folder(
        spec, ANY_MODEL if is_folder else model, path or (model if is_folder else ""), _accept
    )
    source = _Source(spec, folder)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise InvalidArgumentError(
            f"export: {out} cannot be made ({error.strerror}); choose another --out"
        ) from error
    try:
        made.chmod(0o755)
        notes = _settings(source, "" if is_folder else model, made)
        files = _write(source, made, wanted, opset)
        if out.is_dir():
            out.rmdir()
        made.replace(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return Exported(out, files, _command(source, out, wanted), tuple(notes))


def _accept(folder: Path) -> Path:
    """Weights, settings and tokenizer, the transformer's own possibly in a folder below.

    Raises:
        FileNotFoundError: why ``folder`` will not do.
    """
    return transformer(_transformer_folder(folder))


def _transformer_folder(folder: Path) -> Path:
    """Where the transformer's files are: older sentence-transformers folders keep them in one below."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        below = folder / str(modules[0].get("path", ""))
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return folder
    return below if (below / CONFIG).is_file() else folder


class _Source:
    """The model in torch, its tokenizer, and what it answers.

    Attributes:
        is_classifier: it scores pairs: the answer is logits; else token vectors, pooled here.
        inputs: names of the graph's inputs. output: its output.
        pooling: how token vectors become one; empty for a classifier.
    """

    def __init__(self, spec: Spec, folder: Path) -> None:
        torch, transformers = require(spec, "torch"), require(spec, "transformers")
        self.spec, self.folder, self.below = spec, folder, _transformer_folder(folder)
        self.config = read_config(spec, self.below)
        kinds = [str(name) for name in self.config.get("architectures") or []]
        self.is_classifier = any(name.endswith("ForSequenceClassification") for name in kinds)
        kind = (
            transformers.AutoModelForSequenceClassification if self.is_classifier else transformers.AutoModel
        )
        transformers.utils.logging.disable_progress_bar()
        try:
            with _quiet():
                # tracing needs the attention that is written out
                model = kind.from_pretrained(
                    str(self.below), attn_implementation="eager", dtype=torch.float32, local_files_only=True
                )
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            raise ProviderUnavailableError(spec.name, f"{self.below} cannot be loaded ({error})") from error
        self.model = model.eval()
        self.tokenizer = require(spec, "tokenizers").Tokenizer.from_file(str(self.below / TOKENIZER))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.pooling = ""
        if not self.is_classifier:
            self.pooling = (
                ModelFolder(spec.name, folder).pooling() if (folder / POOLING).is_file() else "mean"
            )
        self.output = "logits" if self.is_classifier else "last_hidden_state"
        self.inputs = ["input_ids", "attention_mask"]
        self.rows = self._rows()
        if any(any(types) for _, types in self.rows):
            self.inputs.append("token_type_ids")

    def _rows(self) -> list[Row]:
        """Token ids and type ids of what the files are compared on."""
        if self.is_classifier:
            texts: list[Any] = [(query, each) for query in QUERIES for each in CANDIDATES]
            made = [self.tokenizer.encode(*pair) for pair in texts]
        else:
            made = [self.tokenizer.encode(text) for text in SENTENCES]
        longest = int(self.config.get("max_position_embeddings") or 512) - 4
        return [(list(each.ids)[:longest], list(each.type_ids)[:longest]) for each in made]

    def reference(self) -> Outputs:
        """What torch answers, one row a call."""
        torch = require(self.spec, "torch")

        def call(ids: Any, mask: Any, types: Any) -> Any:
            known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            with torch.inference_mode():
                answer = self.model(**{name: torch.from_numpy(known[name]) for name in self.inputs})
            values = answer[self.output].numpy()
            return pool(values, mask, self.pooling) if self.pooling else values

        return self.answers(call)

    def answers(self, call: Callable[[Any, Any, Any], Any]) -> Outputs:
        """``call``'s answers, one row a call: unit vectors, or the logits."""
        out = []
        for ids, types in self.rows:
            row = np.array([ids], np.int64)
            values = np.asarray(call(row, np.ones_like(row), np.array([types], np.int64)), np.float32)[0]
            out.append(values if self.is_classifier else values / np.linalg.norm(values))
        return np.stack(out)


def _write(source: _Source, made: Path, dtypes: Sequence[str], opset: int) -> tuple[ExportedFile, ...]:
    """The files of ``dtypes`` in ``made``, each compared with torch."""
    expected = source.reference()
    plain = made / FILES["fp32"]
    tell("export", 0, len(dtypes) + 1)
    _trace(source, plain, opset)
    done = []
    for number, dtype in enumerate(dtypes):
        tell("export", number + 1, len(dtypes) + 1)
        file = made / FILES[dtype]
        if dtype != "fp32":
            try:
                with _quiet():
                    WRITERS[dtype](source, plain, file)
            except Exception as error:  # the tools raise whatever they met
                raise ProviderError(
                    f"{source.spec.name}: {source.below} cannot be written as {dtype} "
                    f"({type(error).__name__}: {error}); leave {dtype} out of --dtype"
                ) from error
        done.append(_compared(source, file, dtype, expected))
    if "fp32" not in dtypes:
        plain.unlink()
    tell("export", len(dtypes) + 1, len(dtypes) + 1)
    return tuple(done)


def _trace(source: _Source, file: Path, opset: int) -> None:
    torch = require(source.spec, "torch")
    names, output = source.inputs, source.output

    class Traced(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(names, values)))[output]

    # two rows of unlike length, so that no size and no absence of padding is taken for fixed
    shape = 2, 8
    mask = torch.ones(shape, dtype=torch.int64)
    mask[1, 5:] = 0
    ids = torch.full(shape, int(source.rows[0][0][0]), dtype=torch.int64)
    examples = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    axes = {name: {0: "batch", 1: "tokens"} for name in names}
    axes[output] = {0: "batch"} if source.is_classifier else {0: "batch", 1: "tokens"}
    try:
        with _quiet(), torch.inference_mode():
            torch.onnx.export(
                Traced(source.model), tuple(examples[name] for name in names), str(file), dynamo=False,
                opset_version=opset, input_names=names, output_names=[output], dynamic_axes=axes,
            )  # fmt: skip
    except Exception as error:  # the exporter raises whatever it met
        raise ProviderError(
            f"{source.spec.name}: {source.below} cannot be exported ({type(error).__name__}: {error}); "
            "try another --opset"
        ) from error


def _half(source: _Source, plain: Path, file: Path) -> None:
    """16-bit floats inside, 32-bit ones at the outputs."""
    onnx = require(source.spec, "onnx")
    tool = require(source.spec, "onnxruntime.transformers.float16")
    onnx.save(tool.convert_float_to_float16(onnx.load(str(plain)), keep_io_types=True), str(file))


def _dynamic(source: _Source, plain: Path, file: Path) -> None:
    """8-bit weights, one scale a channel, on the graph whose attention is fused; activations are quantised
    while it runs, with one scale a call.
    """
    optimizer = require(source.spec, "onnxruntime.transformers.optimizer")
    quantization = require(source.spec, "onnxruntime.quantization")
    fused = optimizer.optimize_model(
        str(plain), "bert", num_heads=int(source.config.get("num_attention_heads") or 0),
        hidden_size=int(source.config.get("hidden_size") or 0), opt_level=0,
    )  # fmt: skip
    middle = file.with_suffix(".fused")
    fused.save_model_to_file(str(middle))
    quantization.quantize_dynamic(
        str(middle), str(file), per_channel=True, op_types_to_quantize=["MatMul", "Attention"],
        weight_type=quantization.QuantType.QInt8, extra_options={"DefaultTensorType": FLOAT},
    )  # fmt: skip
    middle.unlink()


def _blocks(source: _Source, plain: Path, file: Path) -> None:
    """8-bit blocks with a scale each, for weights and activations: no row depends on another."""
    if is_bert_like(source.config) and not source.is_classifier:
        weights = read_bert(source.spec, source.below)
        file.write_bytes(encoder_graph(source.folder.name, Blocks(weights)))
        return
    onnx = require(source.spec, "onnx")
    model = onnx.load(str(plain))
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        matrix = tensors.get(node.input[1]) if node.op_type == "MatMul" else None
        if matrix is None or len(matrix.dims) != 2:
            continue
        weights = onnx.numpy_helper.to_array(matrix).T
        stored, scales = blocks_of(np.ascontiguousarray(weights, np.float32))
        names = [f"{matrix.name}.{part}" for part in ("blocks", "scales")]
        if names[0] not in tensors:
            for name, values in zip(names, (stored, scales)):
                tensors[name] = onnx.numpy_helper.from_array(values, name)
        replaced = onnx.helper.make_node(
            "MatMulNBits", [node.input[0], *names], list(node.output), node.name, domain=CONTRIB,
            K=weights.shape[1], N=len(weights), bits=8, block_size=BLOCK, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip
        node.CopyFrom(replaced)
    used = {name for node in graph.node for name in node.input}
    del graph.initializer[:]
    graph.initializer.extend(tensor for name, tensor in tensors.items() if name in used)
    model.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    onnx.save(model, str(file))


#: dtype -> how its file is made from the one in fp32.
WRITERS: dict[str, Callable[[_Source, Path, Path], None]] = {"fp16": _half, "int8": _dynamic, "q8": _blocks}


def _compared(source: _Source, file: Path, dtype: str, expected: Outputs) -> ExportedFile:
    call = session_call(open_session(source.spec, file, 1), source.output, source.pooling)
    found = source.answers(call)
    size = file.stat().st_size
    if source.is_classifier:
        shape = len(QUERIES), len(CANDIDATES)
        least = min(map(_spearman, found[:, 0].reshape(shape), expected[:, 0].reshape(shape)))
        accepted = f"spearman >= {LEAST_SPEARMAN:g}"
        return ExportedFile(dtype, file.name, size, {"spearman": least}, least >= LEAST_SPEARMAN, accepted)
    cosines = np.nan_to_num((found.astype(np.float64) * expected).sum(axis=1), nan=-1.0)
    values = {"minimum": float(cosines.min()), "p1": float(np.quantile(cosines, 0.01))}
    agrees = values["minimum"] >= LEAST[dtype]
    return ExportedFile(dtype, file.name, size, values, agrees, f"minimum cosine >= {LEAST[dtype]:g}")


def _spearman(found: Outputs, expected: Outputs) -> float:
    """Correlation of the ranks of two rows of distinct scores."""
    if not np.isfinite(found).all():
        return -1.0
    found_at, expected_at = (np.argsort(np.argsort(values)) for values in (found, expected))
    distance = float(((found_at - expected_at) ** 2).sum())
    return 1 - 6 * distance / (len(found) * (len(found) ** 2 - 1))


def _settings(source: _Source, model: str, made: Path) -> list[str]:
    """Copy the settings; what a known model's folder leaves out is written, what an unknown one's does is
    said.
    """
    for root in dict.fromkeys((source.folder, source.below)):
        for pattern in SETTINGS:
            for file in root.glob(pattern):
                target = made / file.relative_to(root)
                if file.is_file() and file.name not in NOT_SETTINGS and not target.exists():
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(file, target)
    if source.is_classifier:
        return []
    _flat_modules(made)
    card = CARDS.get(model)
    notes = []
    if not (made / POOLING).is_file():
        how = card.pooling if card else source.pooling
        (made / POOLING).parent.mkdir(exist_ok=True)
        (made / POOLING).write_text(json.dumps({"pooling_mode": how}), encoding="utf-8")
        source.pooling = how
        if not card:
            notes.append(
                f"the model's files name no pooling: {how} is taken; edit {POOLING} if it is another"
            )
    if not (made / PROMPTS).is_file():
        prompts = {"query": card.query_prompt, "document": card.document_prompt} if card else {}
        (made / PROMPTS).write_text(json.dumps({"prompts": prompts}), encoding="utf-8")
        if not card:
            notes.append(f"the model's files name no prompts: none are put before a text; see {PROMPTS}")
    return notes


def _flat_modules(made: Path) -> None:
    """Say in ``modules.json`` that the transformer lies in the folder itself."""
    file = made / "modules.json"
    if file.is_file():
        modules = json.loads(file.read_text(encoding="utf-8"))
        modules[0]["path"] = ""
        file.write_text(json.dumps(modules, indent=2), encoding="utf-8")


def _command(source: _Source, out: Path, dtypes: Sequence[str]) -> str:
    """What measures the result; without a ``model.onnx`` the first file is named."""
    if source.is_classifier:
        chosen = "" if "fp32" in dtypes else f"&file={FILES[dtypes[0]]}"
        return f"bench run --reranker 'cross-encoder?path={out}{chosen}'"
    chosen = "" if "fp32" in dtypes else f"&dtype={dtypes[0]}"
    return f"bench run --provider 'onnx?path={out}{chosen}'"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the warnings and logs of the exporters to themselves: nobody can act on them."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
