"""Which processors this process can really use: CPUs by affinity and quota, CUDA and Apple devices."""

from __future__ import annotations

import importlib.util
import math
import os
import platform
from pathlib import Path

from rag_core.cuda import why_no_cuda
from rag_core.errors import InvalidArgumentError

__all__ = ["is_apple_silicon", "usable_cpus", "why_not"]


def usable_cpus(cgroup_root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int:
    """CPUs available to this process: the least of its affinity, its cgroup quota and ``RAG_THREADS``.

    A container limited to two CPUs of a 64-core host answers 2, where ``os.cpu_count()`` says 64.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity call
        count = os.cpu_count() or 1
    quota = _cgroup_quota(cgroup_root, proc)
    if quota is not None:
        count = min(count, math.ceil(quota))
    wanted = os.environ.get("RAG_THREADS", "").strip()
    if wanted:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise InvalidArgumentError(f"RAG_THREADS is {wanted!r}; accepted: a whole number from 1")
        count = min(count, int(wanted))
    return max(1, count)


def _cgroup_quota(root: Path, proc: Path) -> float | None:
    """CPUs that the control group allows, the tightest along its path; None without a limit."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    limits: list[float] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":  # version 2
            folder = root / path.lstrip("/")
            while True:
                limits += _v2_limit(folder / "cpu.max")
                if folder == root or root not in folder.parents:
                    break
                folder = folder.parent
        elif "cpu" in controllers.split(","):  # version 1
            for folder in (root / "cpu" / path.lstrip("/"), root / "cpu"):
                limits += _v1_limit(folder)
    return min(limits, default=None)


def _v2_limit(file: Path) -> list[float]:
    try:
        quota, period = file.read_text().split()[:2]
        return [] if quota == "max" else [int(quota) / int(period)]
    except (OSError, ValueError, ZeroDivisionError):
        return []


def _v1_limit(folder: Path) -> list[float]:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return [quota / period] if quota > 0 else []
    except (OSError, ValueError, ZeroDivisionError):
        return []


def is_apple_silicon() -> bool:
    """Whether this is a Mac with Apple's own processor, whose GPU is what MLX was written for."""
    return platform.system() == "Darwin" and platform.machine() == "arm64"


def why_not(target: str) -> str:
    """Why ``mlx`` or ``nvidia`` cannot be used here; empty when it can."""
    if target == "mlx":
        if is_apple_silicon() or importlib.util.find_spec("mlx") is not None:
            return ""
        return "needs Apple Silicon or an installed mlx"
    return why_no_cuda()
