"""Reports as pure functions of a result document: one format a file, one line in :data:`FORMATS` each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from harness.render.apart import Drawing, is_worth_it
from harness.results import ResultDocument
from harness.rows import clean, make_rows
from rag_core.errors import MissingExtraError

__all__ = ["FORMATS", "Written", "write_report"]

Writer = Callable[..., Sequence[Path]]

#: Format → ``module:function``, called with (document, folder). Loaded when used.
FORMATS = {
    "plots": "harness.render.plots:write",
    "markdown": "harness.render.markdown:write",
    "csv": "harness.render.csvfile:write",
    "html": "harness.render.html:write",
}
#: Formats that also show what stands beside the result; called with ``beside``, its folder, and ``texts``.
SHOW_RUNS = ("html",)
#: Made after all others, in this order: the plots may be drawn meanwhile, and the markdown shows them.
LAST = ("plots", "markdown")


class Written(list[Path]):
    """The files that were written; ``notes`` says in a sentence each what was not, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []


def writer(name: str) -> Writer:
    """The function behind an entry of :data:`FORMATS`."""
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


def write_report(
    document: ResultDocument, folder: Path, beside: Path | None = None, *, texts: bool = True
) -> Written:
    """Write every format into ``folder``; one that needs a package that is not there becomes a note.

    Args:
        document: what was measured.
        folder: made where it is not there.
        beside: the folder of the result, where its run files stand; ``folder`` without it.
        texts: whether the page may hold texts of queries and documents.
    """
    document = clean(document)
    folder.mkdir(parents=True, exist_ok=True)
    written, made = Written(), {}
    drawing = Drawing(document, make_rows(document), folder) if is_worth_it(document) else None
    try:
        for name in sorted(FORMATS, key=lambda name: LAST.index(name) if name in LAST else -1):
            try:
                drawn = drawing.paths() if drawing is not None and name == LAST[0] else None
                more = {"beside": beside or folder, "texts": texts} if name in SHOW_RUNS else {}
                made[name] = drawn if drawn is not None else writer(name)(document, folder, **more)
            except MissingExtraError as error:
                written.notes.append(f"{name} skipped: {error}")
    finally:
        if drawing is not None:
            drawing.stop()
    for name in FORMATS:
        written += made.get(name, ())
    return written
