"""Cells as a run that audited their texts and roles leaves them."""

from __future__ import annotations

from typing import Any

from harness.results import ResultDocument

SOUND = {"n": 120, "cut": 0, "tokens": 9000, "lost": 0}


def tell(document: ResultDocument, provider: str, **changes: Any) -> None:
    """Give the measured cells of ``provider`` an audit that found nothing, but for ``changes``."""
    for cell in document.cells:
        if cell.key.provider == provider and cell.status == "ok":
            cell.audit = {
                "window": 512,
                "estimated": False,
                "windows": False,
                "documents": SOUND,
                "queries": SOUND,
                "role_cosine": None,
                "prefixes": None,
            } | changes
