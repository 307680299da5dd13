"""The lines of the table that torch computes, and the spec strings that name a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from providers import EMBEDDERS
from providers._hub import is_hub_name
from providers._models import CARDS
from providers.st import ANY, MODELS, load
from rag_core.errors import InvalidArgumentError
from rag_core.factory import SpecString
from rag_core.registry import Registry

SPECS = [spec for spec in EMBEDDERS if spec.load == "providers.st:load"]


def test_the_lines_are_those_of_the_cards() -> None:
    assert {spec.name for spec in SPECS} == {ANY, *MODELS}
    for spec in SPECS:
        assert spec.extra == "local"
        if spec.name != ANY:
            card = CARDS[MODELS[spec.name]]
            assert (spec.model, spec.dim, spec.size_bytes) == (card.model, card.dim, card.size_bytes)
            assert spec.languages == card.languages
    assert {spec.target for spec in SPECS if spec.name == ANY} == {"cpu", "nvidia", "mlx"}
    assert not any(spec.auto for spec in SPECS if spec.name == ANY), "no model is named"


@pytest.mark.parametrize("name", ["bge-m3", "e5-large"])
def test_another_model_is_refused(name: str) -> None:
    spec = next(spec for spec in SPECS if spec.name == name)
    with pytest.raises(InvalidArgumentError, match=f"{name}: model is 'x/y'; accepted: '{spec.model}'"):
        load(replace(spec, model="x/y"))


@pytest.mark.parametrize(
    "text, model, target",
    [
        ("st:/models/mine@cpu", "/models/mine", "cpu"),
        ("st:./mine", "./mine", ""),
        ("st:/a:b/c@nvidia", "/a:b/c", "nvidia"),
        ("st:/a@b/c@cpu", "/a@b/c", "cpu"),
        ("st:owner/name", "owner/name", ""),
    ],
)
def test_a_folder_may_stand_for_the_model(text: str, model: str, target: str) -> None:
    parsed = SpecString.parse(text)
    assert (parsed.name, parsed.model, parsed.target) == ("st", model, target)
    assert SpecString.parse(str(parsed)) == parsed


def test_an_at_sign_in_a_path_is_explained() -> None:
    with pytest.raises(InvalidArgumentError, match=r"a path that holds '@' needs its target behind it"):
        SpecString.parse("st:/a@b/c")


@pytest.mark.parametrize(
    "model, known",
    [("BAAI/bge-m3", True), ("/BAAI/bge-m3", False), ("./a", False), ("../a/b", False), ("~/a", False),
     ("a/b/c", False), ("name", False), ("C:/a", False)],
)  # fmt: skip
def test_a_name_on_the_hub_is_no_path(model: str, known: bool) -> None:
    assert is_hub_name(model) is known


def test_a_folder_that_is_not_there_is_looked_for_once(tmp_path: Path) -> None:
    """Nothing is fetched for it, and no other place is looked in."""
    line = next(spec for spec in SPECS if (spec.name, spec.target) == (ANY, "cpu"))
    registry = Registry("embedding provider")
    answer = registry.availability(replace(line, model=f"{tmp_path}/gone", requires=()), {})
    assert not answer.ok
    assert answer.reason == f"no weights of {tmp_path}/gone; looked in: {tmp_path}/gone"
