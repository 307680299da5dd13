"""LoCoMo's own JSON: conversations over many sessions, and questions whose answers lie in their turns.

A turn is a document, with its session's date as the title; a photo in it appears as its caption. A
question is a query within its own conversation (metadata ``scope``), and its evidence are the judgements.
Ids are ``conversation/D1:3`` and ``conversation/q0``, where questions are counted from 0, all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
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

#: The kinds of question behind the numbers of the file; those of category 5 have no answer in the text.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
WITHOUT_ANSWER = 5
ACCEPTED = "accepted: a list of objects with sample_id, conversation and qa, as in locomo10.json"

_SESSION = re.compile(r"session_[0-9]+")
#: A turn named in evidence. Zeros before a number, and a colon after the D, are slips of the file.
_TURN = re.compile(r"D:?0*([0-9]+):0*([0-9]+)")


def matches(path: Path) -> bool:
    """Whether ``path`` is a file of this form, or a folder with one JSON file that is."""
    return json_file(path, b'"conversation"', b'"qa"', b'"dia_id"') is not None


def load(path: Path) -> Parts:
    """Read the file. What cannot be used is left out and counted in the notes: questions of category 5,
    evidence that names no turn, and questions whose evidence names none at all.

    Raises:
        DataError: the JSON is not of this form; says where.
    """
    file = json_file(path) or path
    samples = read_json(file)
    if isinstance(samples, dict):
        samples = [samples]
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise DataError(file, None, f"{shown(samples)} is no list of conversations; {ACCEPTED}")
    names = [str(sample.get("sample_id", f"conversation-{place}")) for place, sample in enumerate(samples)]
    notes: list[str] = []
    turns = [turn for name, sample in zip(names, samples) for turn in _turns(file, name, sample)]
    documents = documents_from(file, ((0, turn) for turn in turns), notes)
    known = {document.doc_id for document in documents}
    left_out: Counter[str] = Counter()
    asked: list[dict[str, Any]] = []
    qrels: list[Qrel] = []
    for name, sample in zip(names, samples):
        for query, evidence in _questions(file, name, sample, known, left_out):
            asked.append(query)
            qrels += [Qrel(query["_id"], doc_id, 1) for doc_id in evidence]
    queries = queries_from(file, ((0, query) for query in asked), notes)
    notes += [f"{what}: {count}" for what, count in sorted(left_out.items())]
    description = Description(
        name="locomo" if file.stem.startswith("locomo") else file.stem,
        description="Questions about long conversations, each within its own",
        scope="scope",
    )
    return with_languages(Parts(documents, queries, tuple(qrels), description, tuple(notes)))


def _turns(file: Path, name: str, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    conversation = sample.get("conversation")
    if not isinstance(conversation, dict):
        raise DataError(file, None, f"{name}: conversation is {shown(conversation)}; {ACCEPTED}")
    for session, turns in conversation.items():
        if not _SESSION.fullmatch(session):
            continue
        date = str(conversation.get(f"{session}_date_time", ""))
        if not isinstance(turns, list):
            raise DataError(file, None, f"{name}, {session}: {shown(turns)} is no list of turns; {ACCEPTED}")
        for place, turn in enumerate(turns):
            if not isinstance(turn, dict) or not isinstance(turn.get("dia_id"), str):
                raise DataError(file, None, f"{name}, {session}, turn {place}: no dia_id; {ACCEPTED}")
            speaker, text = str(turn.get("speaker", "")), str(turn.get("text") or "")
            caption = turn.get("blip_caption")
            said = f"{speaker}: {text}" + (f" [shares a photo: {caption}]" if caption else "")
            yield {
                "_id": f"{name}/{turn['dia_id']}",
                "title": date,
                "text": _line(said),
                "metadata": {"scope": name, "session": session, "date": date, "speaker": speaker},
            }


def _questions(
    file: Path, name: str, sample: Mapping[str, Any], known: set[str], left_out: Counter[str]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    questions = sample.get("qa")
    if not isinstance(questions, list) or not all(isinstance(q, dict) for q in questions):
        raise DataError(file, None, f"{name}: qa is {shown(questions)}; {ACCEPTED}")
    for place, question in enumerate(questions):
        category = question.get("category")
        if category == WITHOUT_ANSWER:
            left_out["questions of category 5, without an answer, left out"] += 1
            continue
        if category not in CATEGORIES or not isinstance(question.get("question"), str):
            raise DataError(
                file, None, f"{name}, question {place}: category {shown(category)}, question "
                f"{shown(question.get('question'))}; accepted: a text and a category of 1 to 5",
            )  # fmt: skip
        evidence = _evidence(name, question.get("evidence"), known, left_out)
        if not evidence:
            left_out["questions whose evidence names no turn, left out"] += 1
            continue
        answer = question.get("answer")
        metadata = {
            "scope": name,
            "category": CATEGORIES[category],
            "answer": "" if answer is None else str(answer),
        }
        yield (
            {"_id": f"{name}/q{place}", "text": _line(question["question"]), "metadata": metadata},
            evidence,
        )


def _evidence(name: str, named: object, known: set[str], left_out: Counter[str]) -> list[str]:
    """Document ids, in the order of the file, each once.

    One string may name several turns (``"D8:6; D9:17"``, ``"D9:1 D4:4"``).
    """
    found: dict[str, None] = {}
    for text in named if isinstance(named, list) else [named]:
        turns = _TURN.findall(text) if isinstance(text, str) else []
        if not turns:
            left_out["pieces of evidence that cannot be read"] += text is not None
        for session, turn in turns:
            doc_id = f"{name}/D{session}:{turn}"
            if doc_id in known:
                found[doc_id] = None
            else:
                left_out["pieces of evidence that name an unknown turn"] += 1
    return list(found)


def _line(text: str) -> str:
    return " ".join(text.split())
