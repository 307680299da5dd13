from __future__ import annotations

import pickle

import numpy as np
import pytest

from rag_core import errors
from rag_core.errors import MissingExtraError, ProviderUnavailableError, RagCoreError, pip_line

PUBLIC = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_one_base_for_all(kind: type[Exception]) -> None:
    assert issubclass(kind, RagCoreError)
    assert kind.__doc__


def test_every_error_defined_is_exported_and_stands_in_the_picture() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == set(errors.__all__)
    assert all(name in (errors.__doc__ or "") for name in defined)


@pytest.mark.parametrize(
    "kind, builtin",
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.RankingError, ValueError),
        (errors.SpecStringError, ValueError),
        (errors.UnknownNameError, ValueError),
        (errors.ProviderError, RuntimeError),
        (errors.TransientError, errors.ProviderError),
        (errors.PermanentError, errors.ProviderError),
        (errors.PartialEmbedError, errors.ProviderError),
        (errors.StoreError, RuntimeError),
        (errors.IdentityMismatchError, RuntimeError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_the_builtin_kinds_that_callers_may_catch(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


def test_unavailable_carries_reason_and_hint() -> None:
    error = ProviderUnavailableError("cohere", "COHERE_API_KEY is not set", "export COHERE_API_KEY=…")
    assert str(error) == "cohere is not available: COHERE_API_KEY is not set; export COHERE_API_KEY=…"
    assert (error.provider, error.reason, error.hint) == (
        "cohere",
        "COHERE_API_KEY is not set",
        "export COHERE_API_KEY=…",
    )
    assert str(ProviderUnavailableError("x", "gone")) == "x is not available: gone"


def test_a_missing_extra_carries_the_pip_line() -> None:
    error = MissingExtraError("minilm", "onnxruntime", "minilm")
    assert (error.package, error.extra) == ("onnxruntime", "minilm")
    assert pip_line("minilm") == "run: pip install 'rag-core-bench[minilm]'"
    assert str(error).endswith(pip_line("minilm"))


def test_errors_of_one_message_survive_pickling() -> None:
    """A measuring process may hand them to its parent."""
    error = pickle.loads(pickle.dumps(errors.StoreError("damaged")))
    assert str(error) == "damaged"


def test_what_a_service_said_survives_pickling() -> None:
    limited = pickle.loads(pickle.dumps(errors.TransientError("slow down", 429, 30.0)))
    assert (str(limited), limited.status, limited.retry_after_s) == ("slow down", 429, 30.0)
    refused = pickle.loads(pickle.dumps(errors.PermanentError("no such model", 404)))
    assert (str(refused), refused.status) == ("no such model", 404)


def test_a_partial_result_keeps_vectors_and_names_the_rest() -> None:
    vectors = np.zeros((9, 2), np.float32)
    error = errors.PartialEmbedError("jina", vectors, {7: "too long", 1: "NaN", 8: "x", 3: "y"}, True)
    assert list(error.failed) == [1, 3, 7, 8]
    assert str(error) == (
        "jina: 4 of 9 texts have no vector: text 1: NaN; text 3: y; text 7: too long; and 1 more"
    )
    again = pickle.loads(pickle.dumps(error))
    assert (again.failed, again.is_transient, again.provider) == (error.failed, True, "jina")
    assert again.vectors.shape == (9, 2)
