from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rag_core.devices import is_apple_silicon, usable_cpus, why_not
from rag_core.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of 16 CPUs, without RAG_THREADS."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.delenv("RAG_THREADS", raising=False)


def v2(tmp_path: Path, **limits: str) -> tuple[Path, Path]:
    """A control group tree (version 2) of /a/b with ``cpu.max`` where given, and /proc/self/cgroup."""
    for name, folder in (("root", "."), ("a", "a"), ("b", "a/b")):
        (tmp_path / "fs" / folder).mkdir(parents=True, exist_ok=True)
        if name in limits:
            (tmp_path / "fs" / folder / "cpu.max").write_text(limits[name])
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    return tmp_path / "fs", tmp_path / "cgroup"


@pytest.mark.parametrize(
    "limits, expected",
    [
        ({}, 16),
        ({"b": "max 100000\n"}, 16),
        ({"b": "200000 100000\n"}, 2),
        ({"b": "150000 100000\n"}, 2),
        ({"b": "50000 100000\n"}, 1),
        ({"a": "300000 100000\n", "b": "800000 100000\n"}, 3),
        ({"root": "400000 100000\n"}, 4),
        ({"b": "6400000 100000\n"}, 16),
        ({"b": "nonsense\n"}, 16),
        ({"b": "100000 0\n"}, 16),
    ],
)
def test_quota_of_a_control_group(
    sixteen: None, tmp_path: Path, limits: dict[str, str], expected: int
) -> None:
    assert usable_cpus(*v2(tmp_path, **limits)) == expected


@pytest.mark.parametrize("quota, expected", [("200000", 2), ("-1", 16), ("x", 16)])
def test_quota_of_a_control_group_of_version_1(
    sixteen: None, tmp_path: Path, quota: str, expected: int
) -> None:
    folder = tmp_path / "fs" / "cpu" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text("100000")
    (tmp_path / "cgroup").write_text("5:memory:/job\n4:cpu,cpuacct:/job\nmalformed\n")
    assert usable_cpus(tmp_path / "fs", tmp_path / "cgroup") == expected


def test_no_control_group_at_all(sixteen: None, tmp_path: Path) -> None:
    assert usable_cpus(tmp_path, tmp_path / "none") == 16


def test_rag_threads_lowers_and_never_raises(
    sixteen: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = v2(tmp_path, b="400000 100000")
    for value, expected in (("1", 1), ("3", 3), ("64", 4), (" ", 4)):
        monkeypatch.setenv("RAG_THREADS", value)
        assert usable_cpus(*where) == expected


@pytest.mark.parametrize("value", ["0", "-2", "two", "1.5"])
def test_bad_rag_threads_is_refused(sixteen: None, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_THREADS", value)
    with pytest.raises(
        InvalidArgumentError, match=f"RAG_THREADS is '{value}'; accepted: a whole number from 1"
    ):
        usable_cpus()


def test_systems_without_affinity_count_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("RAG_THREADS", raising=False)
    for found, expected in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda found=found: found)
        assert usable_cpus(tmp_path, tmp_path / "none") == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system with CPU affinity")
def test_a_process_bound_to_one_cpu_has_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from rag_core.devices import usable_cpus; print(usable_cpus())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    "system, machine, installed, ok",
    [
        ("Darwin", "arm64", False, True),
        ("Darwin", "x86_64", False, False),
        ("Linux", "x86_64", True, True),
        ("Linux", "aarch64", False, False),
    ],
)
def test_mlx(monkeypatch: pytest.MonkeyPatch, system: str, machine: str, installed: bool, ok: bool) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed else None)
    assert why_not("mlx") == ("" if ok else "needs Apple Silicon or an installed mlx")
    assert is_apple_silicon() == ((system, machine) == ("Darwin", "arm64"))
