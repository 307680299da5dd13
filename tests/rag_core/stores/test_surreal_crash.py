"""kill -9 while rows are written: the store holds the state before or after a call, never one between."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store

pytestmark = [pytest.mark.stores_external, pytest.mark.slow]
ROWS, DIM, KILLS = 150, 16, 20
WRITER = f"""
import sys, pathlib, numpy as np
from rag_core.stores import open_store
store = open_store("surrealdb", pathlib.Path(sys.argv[1]))
round = int(sys.argv[2])
rows = np.random.default_rng(1).standard_normal(({ROWS}, {DIM})).astype(np.float32)
while True:
    round += 1
    ids = [f"d{{i}}" for i in range({ROWS // 2})] + [f"d{{round}}-{{i}}" for i in range({ROWS // 2})]
    print("begin", round, flush=True)
    store.upsert(ids, rows, [{{"round": round}}] * {ROWS})
    print("end", round, flush=True)
"""


def test_kills_leave_whole_calls(tmp_path: Path) -> None:
    identity = Fingerprint("fake", "m", "1", DIM, "fp32", "mean")
    create_store("surrealdb", tmp_path / "s", identity).close()
    choose, done, inside = random.Random(20), 0, 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "s"), str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            said = [writer.stdout.readline()]
            time.sleep(choose.uniform(0, 0.12))
            writer.send_signal(signal.SIGKILL)
            said += writer.stdout.read().splitlines()
        ended = max((int(line.split()[1]) for line in said if line.startswith("end")), default=done)
        begun = max(int(line.split()[1]) for line in said if line.startswith("begin"))
        inside += begun > ended
        store = open_store("surrealdb", tmp_path / "s", identity)
        found = store.query("SELECT VALUE meta.round FROM chunk")  # type: ignore[attr-defined]
        state = max(found, default=0)
        assert state in (ended, begun), f"{ended} was acknowledged, {begun} begun, and {state} is there"
        assert store.count() == (ROWS // 2 * (state + 1) if state else 0)
        assert found.count(state) == (ROWS if state else store.count())
        for earlier in range(1, state):
            assert found.count(earlier) == ROWS // 2
        store.close()
        done = state
    assert inside >= KILLS // 2, "too few kills fell within a call to show anything"


TORN = """
import resource, sys, pathlib, numpy as np
from rag_core.errors import StoreError
from rag_core.stores import open_store
store = open_store("surrealdb", pathlib.Path(sys.argv[1]))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
try:
    store.query("INSERT INTO other $rows RETURN NONE", rows=[{"t": "x" * 5_000, "n": n} for n in range(60)])
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.upsert([f"late{i}" for i in range(50)], np.eye(50, 16, dtype=np.float32) + 1)
print("written", store.count())
store.close()
"""


def test_o34_what_is_written_after_a_torn_record_is_kept(tmp_path: Path) -> None:
    """O34: the engine itself would go on behind the record that did not fit, and cut all of it off later."""
    identity = Fingerprint("fake", "m", "1", DIM, "fp32", "mean")
    store = create_store("surrealdb", tmp_path / "s", identity)
    store.upsert([f"early{i}" for i in range(50)], np.eye(50, DIM, dtype=np.float32) + 1)
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", TORN, str(tmp_path / "s")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert "written 100" in done.stdout
    store = open_store("surrealdb", tmp_path / "s", identity)
    assert store.count() == 100
    assert store.missing([f"{when}{i}" for when in ("early", "late") for i in range(50)]) == []  # type: ignore[attr-defined]
    store.close()
