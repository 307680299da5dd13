"""Files as sources: .txt, .md, .html, .pdf and .jsonl read into blocks of text under their headings.

Whatever is not read is told to ``on_skip`` with the reason, never passed over in silence; only names that
begin with a dot are left out unasked. Text is UTF-8, else UTF-16 with its byte-order mark, else
Windows-1252, the code page of old files; a file with control characters is binary.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_core.errors import InvalidArgumentError, RagCoreError
from rag_core.reading_markup import html_blocks, markdown_blocks
from rag_core.reading_pdf import pdf_blocks
from rag_core.seen import SeenKeys
from rag_core.source import Block, Source

__all__ = ["SUFFIXES", "Block", "Source", "read_folder"]

#: name or line of a file, and why it was not read
OnSkip = Callable[[str, str], None]
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


#: Of a large file that is checked part by part.
PART_CHARS = 1 << 20


class UnreadableError(RagCoreError):
    """A file that holds no text; the message says why."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What a reader finds in one file."""

    blocks: list[Block]
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_folder(path: str | Path, *, on_skip: OnSkip) -> Iterator[Source]:
    """The sources below the folder ``path``, or of the one file ``path``, in the order of their names.

    A source is a file, named by its path below the folder with ``/`` between the parts; or a line of a
    .jsonl file (``_id`` or ``id``, ``text``, ``title``, ``metadata``), named ``file.jsonl:ID``.

    Args:
        on_skip: called with the name of a file (or ``file.jsonl line N``) that is not read, and the reason.

    Raises:
        InvalidArgumentError: no such path.
    """
    root = Path(path)
    if not root.exists():
        raise InvalidArgumentError(f"{root} does not exist; accepted: a folder or a file to read")
    for file in [root] if root.is_file() else _files(root, on_skip):
        name = file.name if root.is_file() else file.relative_to(root).as_posix()
        if not _is_text(name):
            on_skip(ascii(name), "its name is not UTF-8")
            continue
        suffix = file.suffix.lower()
        if suffix not in SUFFIXES:
            on_skip(name, f"files of type {suffix or 'none'} are not read; accepted: {', '.join(SUFFIXES)}")
            continue
        try:
            if suffix == ".jsonl":
                yield from _lines(name, text_lines(file), on_skip)
                continue
            found = SUFFIXES[suffix](file.read_bytes())
        except OSError as error:
            on_skip(name, f"cannot be read: {error.strerror or error}")
            continue
        except RagCoreError as error:
            on_skip(name, str(error))
            continue
        if not any(block.text.strip() for block in found.blocks):
            on_skip(name, "holds no text")
            continue
        title = found.title or file.stem
        yield Source(name, title, tuple(found.blocks), {"source": name, **found.metadata})


def _files(root: Path, on_skip: OnSkip) -> Iterator[Path]:
    def refused(error: OSError) -> None:
        folder = Path(error.filename or root)
        name = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else str(folder)
        on_skip(name, f"cannot be read: {error.strerror or error}")

    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    for file in sorted(found, key=lambda one: one.relative_to(root).as_posix()):
        if file.is_file():
            yield file
        else:
            on_skip(file.relative_to(root).as_posix(), "is not a regular file, or a link to nothing")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_lines(file: Path) -> Iterator[str]:
    """The lines of ``file``, decoded as :func:`decoded` does, of which one at a time is in memory.

    Raises:
        UnreadableError: it is binary.
        OSError: it cannot be read.
    """
    encoding = _encoding(file)
    with file.open(encoding=encoding) as stream:
        try:
            for line in stream:
                yield line.removesuffix("\n")
        except UnicodeDecodeError as error:
            raise UnreadableError("changed while it was read") from error


def _encoding(file: Path) -> str:
    with file.open("rb") as stream:
        begin = stream.read(4)
    first = next((name for mark, name in _BOMS if begin.startswith(mark)), "utf-8")
    for encoding in (first, "cp1252"):
        try:
            with file.open(encoding=encoding) as stream:
                while part := stream.read(PART_CHARS):
                    if _CONTROL.search(part):
                        raise UnreadableError("is binary: it holds control characters")
            return encoding
        except UnicodeDecodeError:
            continue
    raise UnreadableError("is binary, or text in an encoding that is not known")


def decoded(data: bytes) -> str:
    """``data`` as text, lines ended by a line feed.

    Raises:
        UnreadableError: it is binary.
    """
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        try:
            text = data.decode("cp1252")
        except UnicodeDecodeError as error:
            raise UnreadableError("is binary, or text in an encoding that is not known") from error
    if _CONTROL.search(text):
        raise UnreadableError("is binary: it holds control characters")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _plain(data: bytes) -> _Read:
    return _Read([Block(part) for part in re.split(r"\n\s*\n", decoded(data)) if part.strip()])


def _markdown(data: bytes) -> _Read:
    return _Read(*markdown_blocks(decoded(data)))


def _html(data: bytes) -> _Read:
    head = data[:2048].decode("latin-1")
    declared = re.search(r"charset\s*=\s*[\"']?([\w-]+)", head, re.IGNORECASE)
    try:
        text = data.decode(declared[1] if declared else "utf-8")
    except (LookupError, UnicodeDecodeError):
        text = decoded(data)
    return _Read(*html_blocks(text))


def _pdf(data: bytes) -> _Read:
    try:
        return _Read(*pdf_blocks(data))
    except ValueError as error:
        raise UnreadableError(str(error)) from error


def _lines(name: str, lines: Iterable[str], on_skip: OnSkip) -> Iterator[Source]:
    with SeenKeys() as seen:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                source = _document(name, line, seen)
            except (ValueError, RecursionError) as error:
                on_skip(f"{name} line {number}", str(error))
                continue
            yield source


def _document(name: str, line: str, seen: SeenKeys) -> Source:
    """One line of a .jsonl file. ValueError says what is wrong with it."""
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError(f"is of type {type(values).__name__}; accepted: an object")
    given = values.get("_id", values.get("id"))
    if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
        raise ValueError(f"_id is {given!r}; accepted: a string or a whole number")
    text, title, metadata = (values.get(key) for key in ("text", "title", "metadata"))
    if not all(one is None or isinstance(one, str) for one in (text, title)):
        raise ValueError("text or title is not a string")
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError(f"metadata is of type {type(metadata).__name__}; accepted: an object")
    if not (text or "").strip() and not (title or "").strip():
        raise ValueError("holds no text")
    if not seen.add(str(given).encode("utf-8", "surrogatepass")):
        raise ValueError(f"id {given!r} stands twice in the file; the first one counts")
    blocks = tuple(Block(part) for part in re.split(r"\n\s*\n", text or "") if part.strip())
    own = {"source": name, "id": str(given), **(metadata or {})}
    return Source(f"{name}:{given}", title or "", blocks, own)


SUFFIXES: Mapping[str, Callable[[bytes], _Read]] = {
    ".htm": _html,
    ".html": _html,
    ".jsonl": _plain,  # read line by line, see _lines
    ".md": _markdown,
    ".pdf": _pdf,
    ".txt": _plain,
}
