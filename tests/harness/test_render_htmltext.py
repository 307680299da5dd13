"""Escaping, and the sections of the markdown report as HTML."""

from __future__ import annotations

import pytest

from harness.render.blocks import escape
from harness.render.htmltext import as_html, esc, heading, inline
from harness.tables import pipe_table


@pytest.mark.parametrize(
    "text, expected",
    [
        ("</script><script>alert(1)</script>", "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\"'&", "&quot;&#39;&amp;"),
        ("a\x00b\x1fc\x85", "a\ufffdb\ufffdc\ufffd"),
        ("half \ud800 of a pair", "half \ufffd of a pair"),
        ("a\tb\nc · é 😀", "a\tb\nc · é 😀"),
    ],
)
def test_esc(text: str, expected: str) -> None:
    assert esc(text) == expected
    esc(text).encode("utf-8")


@pytest.mark.parametrize("text", ["a_b", "*stars*", "`code`", "<b>", "[link](x)", "back\\slash", "_x_ **y**"])
def test_what_markdown_escapes_is_plain_text_again(text: str) -> None:
    assert inline(escape(text)) == esc(text)


def test_inline_marks() -> None:
    assert inline("**a <b>** and `x<y`") == "<strong>a &lt;b&gt;</strong> and <code>x&lt;y</code>"


def test_a_table_keeps_pipes_and_alignment() -> None:
    html = as_html("## Heads\n\n" + pipe_table(["system", "n"], [["a|b", "1"], ["<i>", "2"]], numeric=1))
    assert "<h3>Heads</h3>" in html
    assert '<th scope="col">system</th><th scope="col" class="n">n</th>' in html
    assert '<th scope="row"><bdi>a|b</bdi></th><td class="n"><bdi>1</bdi></td>' in html
    assert "<bdi>&lt;i&gt;</bdi>" in html
    assert 'role="region" tabindex="0" aria-label="Heads"' in html


def test_lists_paragraphs_and_headings_below() -> None:
    html = as_html("## One\n\n- a\n- **b**\n\nSome\ntext.\n\n## Two\n\n- c\n")
    assert "<ul><li><bdi>a</bdi></li><li><bdi><strong>b</strong></bdi></li></ul>" in html
    assert '<p class="note">Some text.</p>' in html
    assert "<h4>Two</h4>" in html


def test_heading() -> None:
    assert heading("## A b\n\ntext") == ("A b", "\ntext")
    assert heading("text") == ("", "text")
