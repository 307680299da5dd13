"""A transformer in ONNX form: session, call, pooling. Shared by the providers on onnxruntime."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._common import choice, require
from providers._rows import Call, Ids
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.protocols import Vectors
from rag_core.registry import Spec

__all__ = ["open_session", "pool", "runtime_info", "session_call"]

log = logging.getLogger("rag_core")
POOLINGS = ("mean", "cls")
_sessions = 0
_sessions_lock = threading.Lock()


def open_session(spec: Spec, model: Path | bytes, threads: int) -> Any:
    """An inference session on the CPU for ``model``, a file or its content.

    Each call of the session runs on one thread; ``threads`` is how many calls its user means to run at
    once, and is said in the log, for a second session does not share the first one's.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ProviderUnavailableError: there is no such file.
        ProviderError: it is damaged, or this onnxruntime lacks what the model needs.
    """
    global _sessions
    if isinstance(model, Path) and not model.is_file():
        raise ProviderUnavailableError(spec.name, f"no model file {model}")
    runtime = require(spec, "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model
    try:
        session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's own errors have no base class of theirs
        what = str(model) if isinstance(model, Path) else "the model"
        reason = str(error).strip().splitlines()[0][:300]
        raise ProviderError(f"{spec.name}: onnxruntime cannot open {what} ({reason})") from error
    with _sessions_lock:
        _sessions += 1
        number = _sessions
    log.info("%s: onnxruntime session %d of this process, %d threads of its own", spec.name, number, threads)
    return session


def pool(hidden: NDArray[np.float32], mask: NDArray[np.int64], how: str) -> Vectors:
    """Sentence vectors (n, dim) of token vectors (n, tokens, dim); ``mask`` (n, tokens) is 0 on padding.

    ``mean`` averages the tokens that count, ``cls`` takes the first one.

    Raises:
        InvalidArgumentError: ``how`` is neither.
    """
    choice("pooling", "how", how, POOLINGS)
    if how == "cls":
        return np.ascontiguousarray(hidden[:, 0])
    weights = mask.astype(np.float32)
    return np.asarray(np.matmul(weights[:, None, :], hidden)[:, 0] / weights.sum(axis=1, keepdims=True))


def session_call(session: Any, output: str, pooling: str = "") -> Call:
    """A :data:`providers._rows.Call` on ``session``: its ``output``, pooled if so asked.

    Only the inputs that the model has are fed.
    """
    inputs = [entry.name for entry in session.get_inputs()]

    def call(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        (answer,) = session.run([output], {name: known[name] for name in inputs})
        return pool(answer, mask, pooling) if pooling else np.asarray(answer, np.float32)

    return call


def runtime_info(spec: Spec, session: Any, threads: int, **more: Any) -> dict[str, Any]:
    """What stands in a result about the library that computes."""
    return {
        "library": "onnxruntime",
        "version": str(require(spec, "onnxruntime").__version__),
        "threads": threads,
        "execution_provider": session.get_providers()[0],
        **more,
    }
