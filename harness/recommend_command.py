"""`bench recommend`: choose, say why, draw the front, write the ``rag.toml``."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.limits import limits_of, minimum
from harness.metrics import Metric
from harness.progress import wrapped
from harness.ragtoml import check_writable, rag_toml, write_rag_toml
from harness.recommend import Recommendation, recommend
from harness.recommend_findings import recommendation_sentences
from harness.results import load_result
from harness.rows import metric_names
from rag_core.errors import InvalidArgumentError, MissingExtraError

__all__ = ["RecommendOptions", "recommend_command"]

ACCEPTED, NOTHING = 0, 1
FILE = "rag.toml"


@dataclass(frozen=True, slots=True)
class RecommendOptions:
    """Options of the command as typed; empty where not given."""

    result: Path
    most: Mapping[str, str] = field(default_factory=dict)
    minima: Sequence[str] = ()
    margins: Sequence[str] = ()
    metric: str = ""
    prefer: str = "auto"
    usd_per_hour: float | None = None
    out: Path | None = None
    force: bool = False

    def command(self) -> str:
        """The command line that these are."""
        parts = ["bench", "recommend", str(self.result)]
        for name, text in self.most.items():
            parts += [f"--max-{name}", text] if text else []
        for option, texts in (("--min", self.minima), ("--margin", self.margins)):
            for text in texts:
                parts += [option, text]
        parts += ["--metric", self.metric] if self.metric else []
        parts += ["--prefer", self.prefer] if self.prefer != "auto" else []
        parts += ["--usd-per-hour", f"{self.usd_per_hour:g}"] if self.usd_per_hour is not None else []
        return shlex.join(parts)


def recommend_command(options: RecommendOptions, say: Callable[[str], None]) -> int:
    """0 with a recommendation, 1 where nothing is acceptable.

    Raises:
        InvalidArgumentError, UnknownNameError: an option; or the file to write is of another hand.
        ResultError: no result there.
    """
    folder = options.result if options.result.is_dir() else options.result.parent
    target = options.out or folder / FILE
    check_writable(target, options.force)
    document = load_result(options.result)
    usd_per_hour = options.usd_per_hour
    if usd_per_hour is None:
        usd_per_hour = document.spec.get("usd_per_hour")
    measured = metric_names(document)
    found = recommend(
        document,
        limits=[
            *limits_of(options.most, usd_per_hour),
            *(minimum(text, measured) for text in options.minima),
        ],
        margins=options.margins,
        metric=str(Metric.parse(options.metric)) if options.metric else None,
        prefer=options.prefer,
        usd_per_hour=usd_per_hour,
    )
    lines = [wrapped(sentence) for sentence in recommendation_sentences(found)]
    lines += _drawn(found, target.parent)
    if found.chosen is not None:  # before a line is said: output cut short leaves the file whole
        file = options.result / "result.json" if options.result.is_dir() else options.result
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        text = rag_toml(found, command=options.command(), digest=digest)
        write_rag_toml(target, text, force=options.force)
    for line in lines:
        say(line)
    if found.chosen is None:
        if target.exists():
            say(f"not changed: {target}")
        return NOTHING
    say(f"written: {target}")
    say(f"use it: rag ingest FOLDER --index INDEX --config {target}")
    return ACCEPTED


def _drawn(found: Recommendation, folder: Path) -> list[str]:
    """The plots written, or why there are none."""
    try:
        from harness.render.front import write_fronts

        folder.mkdir(parents=True, exist_ok=True)
        return [f"drawn: {path}" for path in write_fronts(found, folder) if path.suffix == ".png"]
    except MissingExtraError as error:
        return [f"plots skipped: {error}"]
    except OSError as error:
        raise InvalidArgumentError(f"{folder} cannot be written: {error.strerror or error}") from error
