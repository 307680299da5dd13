"""The providers as text."""

from __future__ import annotations

import pytest

from rag_core import listing
from rag_core.listing import provider_lines, provider_table
from rag_core.registry import Registry, Spec


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry("embedding provider")
    made.add(
        Spec("here", "model-a", "cpu", 8, "m:load"),
        Spec("there", "m" * 70, "cpu", 0, "m:load", requires=("no_such_package",), extra="local"),
        Spec("keyed", "model-b", "api", 16, "m:load", env=("NO_SUCH_KEY",)),
    )
    monkeypatch.setattr(listing, "EMBEDDERS", made)
    monkeypatch.setattr(listing, "RERANKERS", Registry("reranker"))
    return made


def test_a_line_a_provider_and_why_not(registry: Registry) -> None:
    assert provider_lines() == [
        "embedding providers",
        "  here   cpu        8  yes  model-a",
        "  there  cpu           no",
        "         " + "m" * 70,
        "         package 'no_such_package' is not installed;",
        "         run: pip install 'rag-core-bench[local]'",
        "  keyed  api       16  no   model-b",
        "         NO_SUCH_KEY is not set; export NO_SUCH_KEY=…",
        "",
        "rerankers",
    ]


def test_a_wider_terminal_breaks_fewer_lines(registry: Registry) -> None:
    assert "  there  cpu           no   " + "m" * 70 in provider_lines(200)
    narrow = provider_lines(40)
    assert "         run: pip install" in narrow


def test_all_that_is_registered_fits_80_columns() -> None:
    assert max(map(len, provider_lines())) <= 80


def test_the_table_has_a_row_a_provider(registry: Registry) -> None:
    lines = provider_table()
    assert lines[0] == "| kind | name | model | targets | width | extra | note |"
    assert lines[2] == "| embedding provider | `here` | model-a | cpu | 8 |  |  |"
    assert len(lines) == 5
