"""A measuring process: its events, its failure in its own words, and its death in ours."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.processes import measuring_process


def test_a_failure_is_told_in_the_words_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "one.job.json"
    with measuring_process({"kind": "lexical"}, path, 1) as measuring:
        assert list(measuring) == []
    assert measuring.reason
    assert measuring.failure == measuring.ending == measuring.reason
    assert path.is_file()
    assert (tmp_path / "one.log").is_file()


def test_one_that_is_killed_has_a_signal(tmp_path: Path) -> None:
    with measuring_process({"kind": "lexical"}, tmp_path / "one.job.json", 1) as measuring:
        os.killpg(measuring.process.pid, signal.SIGKILL)
        assert list(measuring) == []
    assert measuring.reason == ""
    assert measuring.failure == measuring.ending
    assert measuring.failure.startswith("the measuring process was ended by SIGKILL (out of memory?)")


def test_one_that_is_left_is_ended(tmp_path: Path) -> None:
    with measuring_process({"kind": "lexical"}, tmp_path / "one.job.json", 1) as measuring:
        pass
    assert measuring.process.poll() is not None
