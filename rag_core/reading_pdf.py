"""PDF files as blocks with their page numbers."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

from rag_core.errors import MissingExtraError
from rag_core.source import Block

__all__ = ["pdf_blocks"]


def pdf_blocks(data: bytes) -> tuple[list[Block], str, dict[str, Any]]:
    """Blocks, title and metadata of a PDF file.

    Raises:
        MissingExtraError: the package pypdf is not installed.
        ValueError: it cannot be read: encrypted, damaged, or without text, as scans are.
    """
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtraError("reading .pdf", "pypdf", "files") from error
    logger = logging.getLogger("pypdf")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs every oddity of a file; what matters is told by on_skip
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ValueError("is encrypted with a password")
        texts = [page.extract_text() or "" for page in reader.pages]
        title = str((reader.metadata.title if reader.metadata else "") or "").strip()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"is damaged: {type(error).__name__}: {error}") from error
    finally:
        logger.setLevel(before)
    blocks = [
        Block(part, "", number)
        for number, text in enumerate(texts, 1)
        for part in re.split(r"\n\s*\n", text.replace("\x00", ""))
        if part.strip()
    ]
    if not blocks:
        raise ValueError(f"holds no text on its {len(texts)} pages (a scan?)")
    return blocks, title, {}
