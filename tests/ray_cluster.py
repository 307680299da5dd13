"""A Ray cluster of two nodes on this machine, for tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CPUS, STORE_BYTES = 2, 80 << 20


@contextmanager
def two_nodes(head_cpus: int) -> Iterator[Any]:
    """A head with ``head_cpus``, 0 for one that does no work, and one more node, its ``node``."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": head_cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        found = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        found.node = found.add_node(num_cpus=CPUS, object_store_memory=STORE_BYTES)
        ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
        yield found
        ray.shutdown()
        found.shutdown()
