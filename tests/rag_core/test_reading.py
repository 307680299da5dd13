"""Files into sources; what cannot be read is told with its reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import InvalidArgumentError
from rag_core.index import Index
from rag_core.reading import Source, read_folder

needs_html = pytest.mark.skipif(
    find_spec("selectolax") is None, reason="needs the extra `files` (selectolax)"
)
needs_pdf = pytest.mark.skipif(find_spec("pypdf") is None, reason="needs the extra `files` (pypdf)")

MARKDOWN = """---
title: "The guide"
date: 2024-05-01
---
Before any heading.

# Install
## Linux
Type this:

```sh
# not a heading
pip install x
```

Setext
------
under it
# Empty at the end
"""

HTML = """<!doctype html><html lang="pt-BR"><head><meta charset="latin-1"><title>Praça &amp; mercado</title>
<style>p {color: red}</style><script>var hidden = 1;</script></head>
<body><nav><a href=x>Home</a></nav><h1>Horário</h1><p>Abre às <b>no</b>ve <br>e fecha às seis.
<h2>Preços</h2><ul><li>Um<li>Dois</ul><table><tr><td>a</td><td>1</td></tr><tr><td>b<td>2</table>
<pre>x  =  1
y</pre><div>solto<p>dentro</div></body></html>"""


def read(path: Path) -> tuple[dict[str, Source], dict[str, str]]:
    skipped: dict[str, str] = {}
    return {one.name: one for one in read_folder(path, on_skip=skipped.__setitem__)}, skipped


def pdf(*pages: str) -> bytes:
    """A PDF file with a line of text a page."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(pages)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>"]
    font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    for i, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents {4 + 2 * i} 0 R"
            f"/Resources<</Font<</F1 {font}>>>>>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def test_markdown(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(MARKDOWN)
    source = read(tmp_path)[0]["guide.md"]
    assert source.title == "The guide"
    assert source.metadata == {"source": "guide.md", "date": "2024-05-01"}
    assert [(block.section, block.text) for block in source.blocks] == [
        ("", "Before any heading."),
        ("Install > Linux", "Install\nLinux\nType this:"),
        ("Install > Linux", "```sh\n# not a heading\npip install x\n```"),
        ("Install > Setext", "Setext\nunder it"),
        ("Empty at the end", "Empty at the end"),
    ]


def test_plain_text_in_the_encodings_of_old_and_new_files(tmp_path: Path) -> None:
    text = "Praça “velha”\r\n\r\n\r\ndois  "
    for name, encoding in (("a", "utf-8"), ("b", "utf-8-sig"), ("c", "utf-16"), ("d", "cp1252")):
        (tmp_path / f"{name}.txt").write_bytes(text.encode(encoding))
    sources, skipped = read(tmp_path)
    assert not skipped
    assert {tuple(block.text for block in one.blocks) for one in sources.values()} == {
        ("Praça “velha”", "dois  ")
    }
    assert sources["a.txt"].title == "a"


@needs_html
def test_html_as_a_browser_reads_it(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_bytes(HTML.encode("latin-1"))
    source = read(tmp_path)[0]["p.html"]
    assert source.title == "Praça & mercado"
    assert source.metadata == {"source": "p.html", "lang": "pt"}
    assert [(block.section, block.text) for block in source.blocks] == [
        ("", "Home"),
        ("Horário", "Horário\nAbre às nove \ne fecha às seis."),
        ("Horário > Preços", "Preços\nUm"),
        ("Horário > Preços", "Dois"),
        ("Horário > Preços", "a  1"),
        ("Horário > Preços", "b  2"),
        ("Horário > Preços", "x  =  1\ny"),
        ("Horário > Preços", "solto"),
        ("Horário > Preços", "dentro"),
    ]


@needs_pdf
def test_pdf_with_pages(tmp_path: Path) -> None:
    (tmp_path / "two.pdf").write_bytes(pdf("The ferry leaves.", "The bus stays."))
    (tmp_path / "scan.pdf").write_bytes(pdf("", ""))
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    sources, skipped = read(tmp_path)
    assert [(b.text, b.page) for b in sources["two.pdf"].blocks] == [
        ("The ferry leaves.", 1),
        ("The bus stays.", 2),
    ]
    assert skipped["scan.pdf"] == "holds no text on its 2 pages (a scan?)"
    assert "is damaged" in skipped["bad.pdf"]


def test_without_the_extra_the_reason_is_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins

    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("pypdf", "selectolax"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    (tmp_path / "a.html").write_text("<p>x")
    (tmp_path / "a.pdf").write_bytes(pdf("x"))
    skipped = read(tmp_path)[1]
    assert all("pip install 'rag-core-bench[files]'" in reason for reason in skipped.values())
    assert set(skipped) == {"a.html", "a.pdf"}


def test_jsonl_and_its_bad_lines(tmp_path: Path) -> None:
    lines = [
        '{"_id": "d1", "title": "T", "text": "one", "metadata": {"lang": "en"}}',
        "",
        '{"id": 7, "text": "two\\n\\nthree"}',
        "{broken",
        "[1]",
        '{"text": "no id"}',
        '{"_id": "d1", "text": "again"}',
        '{"_id": "d2", "text": null, "title": null}',
        '{"_id": "d3", "title": "only a title"}',
        '{"_id": "d4", "text": 5}',
    ]
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    sources, skipped = read(tmp_path)
    assert list(sources) == ["c.jsonl:d1", "c.jsonl:7", "c.jsonl:d3"]
    assert sources["c.jsonl:d1"].metadata == {"source": "c.jsonl", "id": "d1", "lang": "en"}
    assert [block.text for block in sources["c.jsonl:7"].blocks] == ["two", "three"]
    assert list(skipped) == [f"c.jsonl line {n}" for n in (4, 5, 6, 7, 8, 10)]
    assert "stands twice" in skipped["c.jsonl line 7"]


def test_what_is_not_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / ".git" / "config.txt").write_text("hidden")
    (tmp_path / "sub" / "a.txt").write_text("text")
    (tmp_path / "x.docx").write_bytes(b"PK")
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "bin.txt").write_bytes(bytes(range(256)))
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("a name in latin-1")
    os.symlink(tmp_path / "nowhere", tmp_path / "gone.txt")
    sources, skipped = read(tmp_path)
    assert list(sources) == ["sub/a.txt"]
    assert set(skipped) == {"x.docx", "empty.md", "bin.txt", "gone.txt", "'caf\\udce9.txt'"}
    assert "accepted: .htm, .html" in skipped["x.docx"]
    assert "binary" in skipped["bin.txt"]
    assert [one.name for one in read_folder(tmp_path / "sub" / "a.txt", on_skip=print)] == ["a.txt"]
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        list(read_folder(tmp_path / "none", on_skip=print))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    (made / "a.md").write_text("# Ferry\nThe ferry leaves.\n\n# Bus\nThe bus stays.\n")
    (made / "b.txt").write_text("Property tax.")
    (made / "c.jsonl").write_text(json.dumps({"_id": "d1", "text": "A museum."}))
    return made


def texts(index: Index) -> set[str]:
    return {document.text for document in index.documents.values()}


def test_a_folder_is_ingested_and_kept_up_to_date(
    tmp_path: Path, folder: Path, scripted: Callable[..., Any]
) -> None:
    embedder = scripted()
    index = Index.create(tmp_path / "i", embedder)
    report = index.ingest(folder)
    assert (report.added, report.skipped) == (4, {})
    assert index.ingest(str(folder)).unchanged == 4
    hit = index.documents[index.bm25.top("ferry", 1)[0].doc_id]
    assert hit.metadata == {"source": "a.md", "section": "Ferry", "chunk": 0}
    assert hit.title == "Ferry"
    embedder.asked.clear()
    (folder / "a.md").write_text(
        "# Ferry\nThe ferry leaves.\n\n# Tram\nThe tram is free.\n\n# Bus\nThe bus stays.\n"
    )
    report = index.ingest(folder)
    assert (report.added, report.updated, report.unchanged, report.removed) == (1, 1, 3, 0)
    assert embedder.asked == [["d Ferry\nTram\nThe tram is free."]]  # the bus only moved
    (folder / "a.md").write_text("# Ferry\nThe ferry leaves.\n")
    assert index.ingest(folder).removed == 2
    assert texts(index) == {"Ferry\nThe ferry leaves.", "Property tax.", "A museum."}


def test_prune_spares_what_could_not_be_read(
    tmp_path: Path, folder: Path, scripted: Callable[..., Any]
) -> None:
    index = Index.create(tmp_path / "i", scripted())
    index.ingest(folder)
    (folder / "b.txt").write_bytes(b"\x00\x01")
    (folder / "c.jsonl").write_text("{broken")
    (folder / "a.md").unlink()
    (folder / "new.txt").write_text("New.")
    plan = index.plan(folder, prune=True)
    report = index.ingest(folder, prune=True)
    assert set(report.skipped) == set(plan.skipped) == {"b.txt", "c.jsonl line 1"}
    assert (report.removed, report.added) == (plan.removed, plan.added) == (2, 1)
    assert texts(index) == {"Property tax.", "A museum.", "New."}
    with pytest.raises(InvalidArgumentError, match="prune with one file"):
        index.ingest(folder / "new.txt", prune=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidArgumentError, match="would remove all 3"):
        index.ingest(empty, prune=True)
    assert index.ingest(empty).removed == 0


def test_a_changed_file_with_a_refused_chunk_keeps_its_old_chunks(
    tmp_path: Path, folder: Path, scripted: Callable[..., Any]
) -> None:
    """O32."""
    from rag_core.errors import ProviderError

    embedder = scripted()
    index = Index.create(tmp_path / "i", embedder)
    index.ingest(folder)
    (folder / "b.txt").write_text("poison")

    def fail(asked: Sequence[str]) -> BaseException | None:
        return ProviderError("NaN") if any("poison" in text for text in asked) else None

    embedder.fail = fail
    report = index.ingest(folder)
    assert [doc_id.partition("#")[0] for doc_id in report.failed] == ["b.txt"]
    assert "Property tax." in texts(index)
    embedder.down(None)
    report = index.ingest(folder)
    assert (report.added, report.removed) == (1, 1)
    assert not index.is_partial
    assert "Property tax." not in texts(index)
    embedder.fail = fail
    (folder / "b.txt").write_text("poison again")
    assert index.ingest(folder).failed
    (folder / "b.txt").write_text("Calm.")
    index.ingest(folder)
    assert not index.is_partial  # the chunk that failed is no longer in the file
