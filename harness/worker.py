"""One measuring process: ``python -m harness.worker JOB.json``.

It reads its job, measures, and answers on standard output with one JSON event a line:
``{"event": "progress", …}``, ``{"event": "cell", "cell": {…}}``, ``{"event": "failed", "reason": …}``;
those of a sweep stand in :mod:`harness.sweep_worker` and :mod:`harness.sweep_pool`, that of many clients in
:mod:`harness.load_worker`.
It ends when its parent does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from harness.results import strict
from rag_core.progress import listening

__all__ = ["main"]

#: What a job does: ``module:function``, called with the job and the function that answers.
KINDS = {
    "lexical": "harness.measure:measure_lexical",
    "provider": "harness.measure:measure_provider",
    "load": "harness.load_worker:measure_load",
    "sweep": "harness.sweep_worker:measure_variant",
    "sweep-pool": "harness.sweep_pool:freeze_pool",
    "sweep-reranker": "harness.sweep_pool:measure_reranker",
}


def main(job_path: str) -> int:
    """Run the job; returns the exit status."""
    # Whatever a library prints must not mix with the events: they keep the real standard output.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _end_with_parent()

    def emit(event: str, **values: Any) -> None:
        line = json.dumps(strict({"event": event, **values}), ensure_ascii=False, allow_nan=False)
        events.write(line + "\n")
        events.flush()

    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    from rag_core.registry import load_attribute

    def progress(stage: str, done: int, total: int) -> None:
        emit("progress", stage=stage, done=done, total=total)

    try:
        with listening(progress):
            load_attribute(KINDS[job["kind"]])(job, emit)
    except Exception as error:  # noqa: BLE001 - the reason becomes the row's; the parent goes on
        import traceback

        from rag_core.secrets import redact

        traceback.print_exc()
        emit("failed", reason=redact(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _end_with_parent() -> None:
    """Exit when standard input closes: the parent holds its other end and may be killed at any time."""

    def watch() -> None:
        # not through sys.stdin, whose lock a waiting thread holds when the interpreter shuts down
        while os.read(0, 1):
            continue
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
