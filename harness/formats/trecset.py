"""TREC collections: a folder with topics, judgements and documents, each in any of TREC's layouts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.formats.description import read_description
from harness.formats.folders import QRELS_SUFFIXES, Parts
from harness.formats.judgements import read_judgements
from harness.formats.languages import with_languages
from harness.formats.reading import DataError, read_lines, shown
from harness.formats.records import documents_from, queries_from, read_documents, read_queries
from harness.formats.trec import has_trec_columns, read_qrels
from rag_core.types import Document, Qrel, Query

__all__ = ["load", "matches", "read_qrels_file"]

TABLES = (".jsonl", ".csv", ".tsv", ".parquet")
CORPUS = ("corpus", "docs", "documents", "collection")
OURS = ("dataset.toml", "dataset.json")

_TOPIC = re.compile(r"<top>|<topic\b([^>]*)>", re.IGNORECASE)
_NUMBER = re.compile(r"\bnumber\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_FIELD = re.compile(r"<(num|title|query|question|desc|description|narr|narrative)\b[^>]*>", re.IGNORECASE)
_LABEL = re.compile(r"^\s*(number|topic|description|narrative)\s*:\s*", re.IGNORECASE)
_TAG = re.compile(r"<[/!?]?[A-Za-z][^<>]*>|<!--.*?-->", re.DOTALL)
_DOC = re.compile(r"<DOC\b[^>]*>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.DOTALL | re.IGNORECASE)
_TITLES = re.compile(r"<(TITLE|HEADLINE|HL|TTL|TI)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.DOTALL | re.IGNORECASE)


def matches(path: Path) -> bool:
    """Whether ``path`` holds topics, judgements and documents under TREC's names."""
    return path.is_dir() and all((_topics(path), _qrels(path), _corpus(path)))


def load(path: Path) -> Parts:
    """Read the folder.

    Raises:
        DataError: a part is missing or cannot be read as it stands; names file and line.
    """
    topics, qrels, corpus = _topics(path), _qrels(path), _corpus(path)
    if not (topics and qrels and corpus):
        found = ", ".join(file.name for file in (topics, qrels, corpus) if file) or "none of them"
        raise DataError(
            path,
            None,
            f"of topics, qrels and documents found {found}; accepted: topics*, qrels*, corpus* or docs*",
        )
    notes: list[str] = []
    documents, queries = _read_corpus(corpus, notes), _read_topics(topics, notes)
    judged = read_qrels_file(qrels, notes)
    return with_languages(Parts(documents, queries, judged, read_description(path), tuple(notes)))


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.name not in OURS and not file.name.startswith("."))


def _topics(path: Path) -> Path | None:
    return next((f for f in _files(path) if f.is_file() and _called(f, "topics")), None)


def _qrels(path: Path) -> Path | None:
    found = [file for file in _files(path) if _called(file, "qrels")]
    inside = [f for folder in found if folder.is_dir() for f in _files(folder) if f.suffix in QRELS_SUFFIXES]
    return next((file for file in (*found, *inside) if file.is_file()), None)


def _corpus(path: Path) -> Path | None:
    return next((f for stem in CORPUS for f in _files(path) if _called(f, stem)), None)


def _called(file: Path, word: str) -> bool:
    """``qrels.txt``, ``qrels-robust.trec``, ``robust.qrels``, or a folder of that name."""
    name = file.name.lower()
    return re.match(rf"{word}(?![a-z])", name) is not None or name.endswith(f".{word}")


def _read_topics(file: Path, notes: list[str]) -> tuple[Query, ...]:
    if file.suffix in TABLES:
        return read_queries(file, notes)
    lines = read_lines(file)
    text = "\n".join(lines)
    if not _TOPIC.search(text):
        # "301<TAB>text" under a name like topics.txt
        rows = ((n, line.split("\t", 1)) for n, line in enumerate(lines, 1) if line.strip())
        return queries_from(file, ((n, _pair(file, n, fields)) for n, fields in rows), notes)
    return queries_from(file, _topic_rows(file, text), notes)


def _pair(file: Path, line: int, fields: list[str]) -> dict[str, Any]:
    if len(fields) != 2:
        raise DataError(file, line, f"{shown(fields[0])}: accepted: <top> … </top>, or number, tab, text")
    return {"_id": fields[0].strip(), "text": fields[1].strip()}


def _topic_rows(file: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Topics of the classic form, whose tags are not closed, or of the XML form with ``number="1"``."""
    starts = list(_TOPIC.finditer(text))
    for start, stop in zip(starts, [*(m.start() for m in starts[1:]), len(text)]):
        line = text.count("\n", 0, start.start()) + 1
        fields: dict[str, str] = {}
        tags = list(_FIELD.finditer(text, start.end(), stop))
        for tag, end in zip(tags, [*(m.start() for m in tags[1:]), stop]):
            fields.setdefault(tag[1].lower(), _plain(text[tag.end() : end]))
        attribute = _NUMBER.search(start[1] or "")
        number = attribute[1] if attribute else fields.get("num", "")
        asked = next(
            (fields[key] for key in ("title", "query", "question", "desc", "description") if fields.get(key)),
            "",
        )
        if not number or not asked:
            raise DataError(
                file, line, f"topic with number {shown(number)} and text {shown(asked)}; "
                "accepted: <num> and one of <title>, <query>, <question>, <desc>",
            )  # fmt: skip
        yield line, {"_id": number, "text": asked}


def _plain(text: str) -> str:
    """Text without tags, entities and the words "Number:", "Topic:", "Description:" in front."""
    return " ".join(html.unescape(_LABEL.sub("", _TAG.sub(" ", text))).split())


def _read_corpus(path: Path, notes: list[str]) -> tuple[Document, ...]:
    files = [f for f in sorted(path.rglob("*")) if f.is_file()] if path.is_dir() else [path]
    seen: dict[str, Path] = {}
    made: list[Document] = []
    for file in files:
        tables = file.suffix in TABLES
        read = read_documents(file, notes) if tables else documents_from(file, _doc_rows(file), notes)
        for document in read:
            first = seen.setdefault(document.doc_id, file)
            if first != file:
                raise DataError(
                    file, None, f"document {shown(document.doc_id)} stands already in {first.name}; "
                    "accepted: each id once",
                )  # fmt: skip
        made += read
    return tuple(made)


def _doc_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """``<DOC><DOCNO>…``: the text is that of the TEXT elements, or of all elements where there is none."""
    text = "\n".join(read_lines(file))
    line, at = 1, 0
    for found in _DOC.finditer(text):
        line, at = line + text.count("\n", at, found.start()), found.start()
        inside = found[1]
        number = _DOCNO.search(inside)
        if not number:
            raise DataError(
                file, line, f"{shown(inside.strip())} has no DOCNO; accepted: <DOC><DOCNO>id</DOCNO>"
            )
        title = " ".join(_plain_tags(part[1]) for part in _TITLES.findall(inside))
        rest = _TITLES.sub(" ", _DOCNO.sub(" ", inside))
        bodies = _TEXT.findall(rest)
        yield (
            line,
            {
                "_id": number[1].strip(),
                "title": title,
                "text": _plain_tags("\n".join(bodies) if bodies else rest),
            },
        )
    if at == 0 and not _DOC.search(text):
        raise DataError(file, 1, "no <DOC>; accepted: <DOC><DOCNO>id</DOCNO> … </DOC>, or .jsonl, .csv, .tsv")


def _plain_tags(text: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def read_qrels_file(file: Path, notes: list[str]) -> tuple[Qrel, ...]:
    """Judgements of three columns or of TREC's four, comments allowed in the latter.

    Raises:
        DataError: a line that is neither; names it.
    """
    return read_qrels(file) if has_trec_columns(file) else read_judgements(file, notes)
