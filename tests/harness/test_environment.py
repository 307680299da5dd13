"""What the figures were measured on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from harness.environment import (
    environment,
    installed_from,
    machine_fingerprint,
    peak_rss_bytes,
    worker_environment,
)
from rag_core.devices import usable_cpus


def test_it_is_plain_json_and_names_the_machine() -> None:
    found = json.loads(json.dumps(environment(), allow_nan=False))
    assert found["cpu_model"]
    assert found["cpus_usable"] == usable_cpus()
    assert found["memory_bytes"] > 2**28
    assert found["packages"]["numpy"]
    assert len(found["machine_fingerprint"]) == 12


def test_thread_pools_are_sized_to_the_usable_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """O14: recorded, settable, and what the user has set stands."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert worker_environment()["OMP_NUM_THREADS"] == str(usable_cpus())
    assert worker_environment(3)["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert worker_environment(3)["OMP_NUM_THREADS"] == "7"
    assert environment()["threads"]["OMP_NUM_THREADS"] == "7"


def test_the_fingerprint_follows_the_processor() -> None:
    machine = environment()
    assert machine_fingerprint(machine) == machine["machine_fingerprint"]
    assert machine_fingerprint(machine | {"cpus_usable": 99}) != machine["machine_fingerprint"]


def test_peak_memory_is_this_process_alone() -> None:
    """A child must not report the peak that its parent had."""
    code = "from harness.environment import peak_rss_bytes; print(peak_rss_bytes())"
    ballast = bytearray(300 * 2**20)
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert len(ballast) > 0
    assert 5 * 2**20 < int(child.stdout) < 250 * 2**20
    assert peak_rss_bytes() > 300 * 2**20


def test_it_says_where_the_packages_come_from() -> None:
    assert set(installed_from()) == {"rag_core", "providers", "harness"}
