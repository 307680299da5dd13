from __future__ import annotations

import sys
import types

import pytest

from providers._common import choice, count, only_model, require, seconds
from rag_core.errors import InvalidArgumentError, MissingExtraError
from rag_core.registry import Spec

SPEC = Spec("mine", "model-a", "cpu", 4, "x:y", extra="mine-extra")


@pytest.mark.parametrize("value, expected", [("0", 0.0), ("0.25", 0.25), (2, 2.0), ("3600", 3600.0)])
def test_seconds(value: str | float, expected: float) -> None:
    assert seconds("mine", "call_s", value) == expected


@pytest.mark.parametrize("value", ["-1", "soon", "nan", "inf", "", "3601"])
def test_seconds_refused_with_option_value_and_range(value: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"mine: option call_s is .*accepted: seconds from 0 to 3600"
    ) as e:
        seconds("mine", "call_s", value)
    assert repr(value) in str(e.value)


@pytest.mark.parametrize("value, expected", [("1", 1), ("16", 16), (3, 3)])
def test_count(value: str | int, expected: int) -> None:
    assert count("mine", "threads", value) == expected


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "1025"])
def test_count_refused_with_option_value_and_range(value: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"mine: option threads is .*a whole number from 1 to 1024"
    ) as e:
        count("mine", "threads", value)
    assert repr(value) in str(e.value)


def test_choice() -> None:
    assert choice("mine", "variant", "a", ("a", "b")) == "a"
    with pytest.raises(InvalidArgumentError, match="mine: option variant is 'c'; accepted: 'a', 'b'"):
        choice("mine", "variant", "c", ("a", "b"))


def test_only_model() -> None:
    only_model(SPEC, "model-a")
    with pytest.raises(InvalidArgumentError, match="mine: model is 'model-a'; accepted: 'model-b'"):
        only_model(SPEC, "model-b")


def test_require_gives_the_package_or_the_pip_line() -> None:
    assert require(SPEC, "json").loads("1") == 1
    with pytest.raises(
        MissingExtraError, match=r"no_such_package.*pip install 'rag-core-bench\[mine-extra\]'"
    ):
        require(SPEC, "no_such_package")


def test_a_package_that_fails_on_its_own_imports_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    (tmp_path / "half_installed.py").write_text("import its_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_missing_dependency") as error:
        require(SPEC, "half_installed")
    assert not isinstance(error.value, MissingExtraError)


def test_require_takes_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = types.ModuleType("stub_package")
    monkeypatch.setitem(sys.modules, "stub_package", stub)
    assert require(SPEC, "stub_package") is stub
