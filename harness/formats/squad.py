"""SQuAD-form JSON (SQuAD, SQuAD-es, XQuAD, FaQuAD …): paragraphs are documents, questions are queries.

The paragraph under which a question stands is its one relevant document. A question that two paragraphs
share by its id has both. Ids are ``article-paragraph``, both from 0, and the questions' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.formats.description import Description
from harness.formats.folders import Parts
from harness.formats.languages import with_languages
from harness.formats.reading import DataError, read_json, shown
from harness.formats.records import documents_from, queries_from
from harness.formats.sniffing import json_file
from rag_core.types import Qrel

__all__ = ["load", "matches"]

#: Sets, by the start of their files' names, whose titles are names of English pages in every language.
ENGLISH_TITLES = ("xquad",)
ACCEPTED = (
    'accepted: {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [{"id": …, "question": …}]}]}]}'
)


def matches(path: Path) -> bool:
    """Whether ``path`` is a file of this form, or a folder with one JSON file that is."""
    return json_file(path, b'"paragraphs"', b'"context"', b'"qas"') is not None


def load(path: Path) -> Parts:
    """Read the file.

    White space is made single blanks and byte-order marks inside are dropped: neither is part of the
    text. Underscores in titles become blanks. A question that is marked impossible has no judgement and
    the tag ``kind: no-answer``.

    Raises:
        DataError: the JSON is not of this form, or an id has two texts; says where.
    """
    file = json_file(path) or path
    content = read_json(file)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise DataError(file, None, f"no list called data in {shown(content)}; {ACCEPTED}")
    notes: list[str] = []
    titled = not file.name.lower().startswith(ENGLISH_TITLES)
    if not titled:
        notes.append("titles left out: they are names of English pages whatever the language")
    paragraphs: list[dict[str, Any]] = []
    texts: dict[str, dict[str, Any]] = {}
    qrels: dict[tuple[str, str], Qrel] = {}
    counts: Counter[str] = Counter()
    for number, title, paragraph in _paragraphs(file, articles):
        context = paragraph.get("context")
        if not isinstance(context, str):
            raise DataError(file, None, f"paragraph {number}: context is {shown(context)}; {ACCEPTED}")
        paragraphs.append({"_id": number, "title": _clean(title) if titled else "", "text": _clean(context)})
        for question in _list(file, f"paragraph {number}", paragraph, "qas"):
            query_id, text = question.get("id"), question.get("question")
            if not isinstance(query_id, (str, int)) or not isinstance(text, str):
                raise DataError(
                    file,
                    None,
                    f"paragraph {number}: id {shown(query_id)}, question {shown(text)}; {ACCEPTED}",
                )
            query: dict[str, Any] = {"_id": str(query_id), "text": _clean(text)}
            if question.get("is_impossible"):
                query["metadata"] = {"kind": "no-answer"}
                counts["questions marked impossible, without a judgement"] += 1
            else:
                qrels[str(query_id), number] = Qrel(str(query_id), number, 1)
            first = texts.setdefault(str(query_id), query)
            counts["questions that stand under several paragraphs"] += first is not query
            if first["text"] != query["text"]:
                raise DataError(
                    file, None, f"question id {shown(query_id)} has two texts, {shown(first['text'])} and "
                    f"{shown(query['text'])}; accepted: one text for an id",
                )  # fmt: skip
    notes += [f"{what}: {count}" for what, count in counts.items() if count]
    documents = documents_from(file, ((0, paragraph) for paragraph in paragraphs), notes)
    queries = queries_from(file, ((0, query) for query in texts.values()), notes)
    description = Description(name=file.stem, description="Paragraphs, and questions that each answers")
    return with_languages(Parts(documents, queries, tuple(qrels.values()), description, tuple(notes)))


def _paragraphs(file: Path, articles: list[Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for i, article in enumerate(articles):
        if not isinstance(article, dict):
            raise DataError(file, None, f"article {i} is {shown(article)}; {ACCEPTED}")
        title = str(article.get("title") or "").replace("_", " ")
        for j, paragraph in enumerate(_list(file, f"article {i}", article, "paragraphs")):
            yield f"{i}-{j}", title, paragraph


def _list(file: Path, where: str, values: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = values.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise DataError(file, None, f"{where}: {key} is {shown(found)}; {ACCEPTED}")
    return found


def _clean(text: str) -> str:
    return " ".join(text.replace("\ufeff", "").split())
