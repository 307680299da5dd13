"""Embedding a corpus on many machines: shards of texts go out, fragments of vectors return, one commits them.

::

    shards.py      Parquet files of texts, and of the vectors made from them
    work.py        what one worker does with one shard
    engine.py      where workers come from: the protocol, and this process
    ray_engine.py  actors of a Ray cluster
    ray_wait.py    how long work waits for a node that could take it
    ray_pace.py    the rate budget that they share
    ahead.py       the vectors of an ingest, made by an engine before the writer needs them

Importing this package imports none of pyarrow and Ray.
"""

from __future__ import annotations

from rag_core.scale.engine import EmbedEngine, EmbedJob, InProcessEngine, ShardReport
from rag_core.scale.ray_engine import RayEngine

__all__ = ["EmbedEngine", "EmbedJob", "InProcessEngine", "RayEngine", "ShardReport"]
