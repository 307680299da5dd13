"""Where torch computes: a device that has proved itself, its defaults, and torch's own threads."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from providers._common import require
from providers._rows import Call, Ids
from rag_core.devices import is_apple_silicon
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.protocols import Target
from rag_core.registry import Spec

__all__ = [
    "DEFAULT_DTYPE",
    "PLACES",
    "CpuThreads",
    "Place",
    "missing_device",
    "open_device",
    "runtime_info",
    "watched",
]

#: The dtype of a target where none is asked for. fp16 gains nothing on a CPU and is never chosen there.
DEFAULT_DTYPE: dict[Target, str] = {"cpu": "fp32", "nvidia": "fp16", "mlx": "fp32"}
#: Products of a weight and a token from which one call is worth more than one thread of torch's own.
#: Measured on two cores, a query of 12 tokens (MiniLM, 0.13e9): one thread 1.9 ms, two 3.3 ms.
WORTH_THREADS = 1_000_000_000
#: Edge of the matrices that a device multiplies before it counts; every sum is a whole number in fp32.
PROOF = 64


class Place(NamedTuple):
    """Attributes:
    device: torch's name of the kind of device.
    token_budget: tokens of one call, padding included.
    multiple: rows are padded to a multiple of this many tokens.
    """

    device: str
    token_budget: int
    multiple: int = 1


#: Measured on two cores with MiniLM, passages of 1 to 200 words a second at budgets of 256, 512, 1024, 2048
#: and 4096 tokens: 212, 220, 211, 199, 169 in fp32; 308, 341, 328, 311, 265 in bf16. A GPU wants large calls.
PLACES: dict[Target, Place] = {
    "cpu": Place("cpu", 512),
    "nvidia": Place("cuda", 32_768, 8),
    "mlx": Place("mps", 8_192, 8),
}


def missing_device(spec: Spec) -> str:
    """Why torch has no device of ``spec.target`` on a machine of this kind; empty when it may have one.

    ``mlx`` stands for Apple's GPU; an installed mlx, which runs anywhere, gives torch none.
    """
    return "needs Apple Silicon" if spec.target == "mlx" and not is_apple_silicon() else ""


def open_device(spec: Spec, device: str = "") -> tuple[Any, str]:
    """torch, and torch's name of a device of ``spec.target`` that has just multiplied two matrices rightly.

    Args:
        spec: whose target it is.
        device: which one, for example ``cuda:1``; by default the first.

    Raises:
        MissingExtraError: torch is not installed.
        InvalidArgumentError: ``device`` is not one of the target.
        ProviderUnavailableError: there is no such device, or it does not compute.
    """
    kind = PLACES[spec.target].device
    if device and not re.fullmatch(rf"{kind}(:\d+)?", device):
        raise InvalidArgumentError(
            f"{spec.name}@{spec.target}: option device is {device!r}; accepted: {kind} or {kind}:NUMBER"
        )
    torch = require(replace(spec, extra="local"), "torch")
    name = device or kind
    try:
        left = torch.arange(PROOF * PROOF, dtype=torch.float32).reshape(PROOF, PROOF) % 7
        found = (left.to(name) @ left.to(name)).cpu()
        is_right = bool((found == left @ left).all())
    except Exception as error:  # each kind of device has errors of its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ProviderUnavailableError(
            spec.name, f"torch {torch.__version__} cannot compute on {name} ({reason})"
        ) from error
    if not is_right:
        raise ProviderUnavailableError(spec.name, f"{name} multiplies two small matrices wrongly")
    return torch, name


def runtime_info(torch: Any, device: str, threads: int, **more: Any) -> dict[str, Any]:
    """What stands in a result about the library that computes."""
    kind = device.partition(":")[0]
    info: dict[str, Any] = {
        "library": "torch",
        "version": str(torch.__version__),
        "threads": threads,
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if kind == "cuda" else kind,
        # an answer is on the host when a call returns, so that no clock stops before the work is done
        "sync": "none needed" if kind == "cpu" else "copy to the host",
    }
    if kind == "cuda":
        info["cuda"] = str(torch.version.cuda)
    return info | more


def watched(torch: Any, device: str, call: Call, runtime: dict[str, Any]) -> Call:
    """``call``, with the most bytes that torch held on ``device`` kept in ``runtime``."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return call
    if kind == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def counted(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        answer = call(ids, mask, types)
        held = (
            torch.cuda.max_memory_allocated(device) if kind == "cuda" else torch.mps.driver_allocated_memory()
        )
        runtime["device_peak_bytes"] = max(int(held), runtime.get("device_peak_bytes", 0))
        return answer

    return counted


class CpuThreads:
    """Calls side by side, each on one thread; torch's own threads only for a large call that runs alone.

    Threads within a call wait for each other, and on a busy machine for whoever holds the other core: two
    of them were up to five times slower than one there. torch counts threads per calling thread, and as it
    was afterwards.
    """

    def __init__(self, torch: Any, threads: int, weights: int) -> None:
        """``threads``: most of them for one call; ``weights``: how many a token is multiplied with."""
        self._torch, self._threads, self._weights = torch, threads, weights
        self._here = threading.local()

    @contextmanager
    def caller(self) -> Iterator[None]:
        """Around the work of the thread that waits for the calls."""
        before = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        self._here.is_caller = True
        try:
            yield
        finally:
            self._here.is_caller = False
            self._torch.set_num_threads(before)

    def spread(self, call: Call) -> Call:
        """``call`` with as many threads as suit it."""
        torch = self._torch

        def chosen(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
            is_alone = getattr(self._here, "is_caller", False)  # else it runs on one of the runner's threads
            is_large = ids.size * self._weights >= WORTH_THREADS
            wanted = self._threads if is_alone and is_large else 1
            if torch.get_num_threads() != wanted:
                torch.set_num_threads(wanted)
            return call(ids, mask, types)

        return chosen
