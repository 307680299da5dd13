"""Tuned keys in a rag.toml: the rest of the file stays as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from harness.tuned_file import OWNED, with_search, write_search
from rag_core.errors import InvalidArgumentError

VALUES = {"fusion": "adaptive", "candidate_pool": 100, "weights": [2.0, 1.0]}


def test_a_new_file_has_the_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "rag.toml"
    write_search(path, VALUES, ["bench tune: why"], OWNED)
    assert path.read_text() == (
        '[search]\n# bench tune: why\nfusion = "adaptive"\ncandidate_pool = 100\nweights = [2.0, 1.0]\n'
    )
    assert tomllib.loads(path.read_text()) == {"search": VALUES}


def test_other_tables_keys_and_comments_stay_and_old_choices_go(tmp_path: Path) -> None:
    path = tmp_path / "rag.toml"
    path.write_text(
        '[embedding]\nprovider = "e5-small"  # ours\n\n[search]\ntop_k = 5\n# bench tune: of old\n'
        'pipeline = "vector"\nrrf_k = 10.0\n\n[index]\nstore = "flat"\n'
    )
    write_search(path, VALUES, ["bench tune: new"], OWNED)
    text = path.read_text()
    assert tomllib.loads(text) == {
        "embedding": {"provider": "e5-small"},
        "search": {"top_k": 5, **VALUES},
        "index": {"store": "flat"},
    }
    assert "# ours" in text
    assert "of old" not in text
    write_search(path, VALUES, ["bench tune: new"], OWNED)
    assert path.read_text() == text


def test_a_threshold_alone_leaves_the_other_choices() -> None:
    made = with_search('[search]\nfusion = "zscore"\n', {"score_threshold": 0.25}, [], ())
    assert tomllib.loads(made)["search"] == {"fusion": "zscore", "score_threshold": 0.25}


@pytest.mark.parametrize(
    "text", ['search = {top_k = 5}\n', "search.fusion = 'rrf'\n", "[search]\nweights = [\n 1,\n 2]\n"]
)  # fmt: skip
def test_a_form_that_cannot_be_changed_by_line_is_refused_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rag.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"a plain table \[search\].*fusion = \"adaptive\""):
        write_search(path, VALUES, ["why"], OWNED)
    assert path.read_text() == text


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rag.toml"
    path.write_text("[search\n")
    with pytest.raises(InvalidArgumentError, match="cannot be changed"):
        write_search(path, VALUES, [], OWNED)
