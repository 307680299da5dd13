"""What one worker does: load the embedder once, then shard by shard texts in, a fragment of vectors out."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.errors import IdentityMismatchError, RagCoreError
from rag_core.factory import get_embedder
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import disk_errors
from rag_core.index_ingest import embed_all
from rag_core.protocols import EmbedProvider
from rag_core.scale.engine import EmbedJob, ShardReport, shard_path
from rag_core.scale.shards import fragment_name, read_shard, texts_embedded, write_fragment

__all__ = ["ShardWorker", "report_of"]


class ShardWorker:
    """Embeds shards of one job. An instance holds one loaded model."""

    def __init__(self, job: EmbedJob) -> None:
        """Load nothing yet: what fails then is a report, not a worker that cannot start."""
        self._job = job
        self._identity = Fingerprint.from_dict(job.identity)
        self._embedder: EmbedProvider | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Columns in, columns out: ``number`` of shards to ``report``, for ``map_batches``."""
        reports = [self.shard(int(number)) for number in batch["number"]]
        return {"report": np.array([_packed(report) for report in reports], object)}

    def shard(self, number: int) -> ShardReport:
        """Embed shard ``number``. A fragment that is there already is not made again."""
        try:
            with disk_errors(Path(self._job.fragments)):
                return self._embed(number)
        except RagCoreError as error:
            return ShardReport(number, error=error)

    def _embed(self, number: int) -> ShardReport:
        job = self._job
        pairs = list(read_shard(shard_path(job.shards, number)))
        tags = [tag for tag, _ in pairs]
        path = Path(job.fragments) / fragment_name(tags, self._identity.digest)
        if (embedded := texts_embedded(path)) == len(tags):
            return ShardReport(number, embedded)
        embedder = self._loaded()
        failed: dict[bytes, str] = {}
        kept: list[bytes] = []
        rows = [np.zeros((0, self._identity.dim), np.float32)]
        for start in range(0, len(pairs), job.batch):
            part = pairs[start : start + job.batch]
            vectors, positions = embed_all(embedder, [text for _, text in part], strict=False)
            failed.update({part[position][0]: reason for position, reason in positions.items()})
            good = [position for position in range(len(part)) if position not in positions]
            kept += [part[position][0] for position in good]
            rows.append(vectors[good])
        if kept:
            about = {"embedded": len(kept), "fingerprint": job.identity}
            write_fragment(path, kept, np.concatenate(rows), about)
        return ShardReport(number, len(kept), failed)

    def _loaded(self) -> EmbedProvider:
        if self._embedder is None:
            if self._job.threads:  # of the machine's CPUs, those that are this worker's
                os.environ["RAG_THREADS"] = str(self._job.threads)
            embedder = get_embedder(self._job.provider)
            found = embedder.fingerprint
            if found != self._identity:
                raise IdentityMismatchError(
                    f"the worker's embedder {self._job.provider!r} is not that of the index: "
                    + "; ".join(found.differences(self._identity))
                    + " (worker / index); install the same packages and models on every node"
                )
            self._embedder = embedder
        return self._embedder


def _packed(report: ShardReport) -> bytes:
    failed = {tag.hex(): reason for tag, reason in report.failed.items()}
    error = None if report.error is None else pickle.dumps(report.error).hex()
    return json.dumps([report.number, report.embedded, failed, error]).encode()


def report_of(packed: bytes) -> ShardReport:
    """The report that a worker's column ``report`` holds."""
    number, embedded, failed, error = json.loads(packed)
    reasons = {bytes.fromhex(tag): reason for tag, reason in failed.items()}
    return ShardReport(
        number, embedded, reasons, None if error is None else pickle.loads(bytes.fromhex(error))
    )
