from __future__ import annotations

import pickle

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
