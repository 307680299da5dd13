"""A device must multiply before it counts; torch's own threads are left as they were found."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from providers import _torch_device as device
from providers._torch_device import CpuThreads, missing_device, open_device, runtime_info, watched
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.protocols import Target
from rag_core.registry import Spec

local = pytest.mark.embeddings_local
ROW = np.ones((1, 4), np.int64)


def spec(target: Target = "cpu") -> Spec:
    return Spec("tiny", "tiny", target, 0, "x:y", extra="minilm")


@pytest.mark.parametrize(
    "target, name, accepted",
    [("cpu", "cuda", "cpu"), ("nvidia", "cpu", "cuda"), ("nvidia", "cuda:x", "cuda"), ("mlx", "gpu", "mps")],
)
def test_a_device_of_another_target_is_refused(target: Target, name: str, accepted: str) -> None:
    told = f"tiny@{target}: option device is '{name}'; accepted: {accepted} or {accepted}:NUMBER"
    with pytest.raises(InvalidArgumentError, match=told):
        open_device(spec(target), name)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[local\]'"):
        open_device(spec())


def test_fp16_is_never_a_cpus_default() -> None:
    assert device.DEFAULT_DTYPE["cpu"] == "fp32"
    assert set(device.DEFAULT_DTYPE) == set(device.PLACES)


def test_apples_gpu_needs_apples_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_apple_silicon", lambda: False)
    assert missing_device(spec("mlx")) == "needs Apple Silicon"
    assert (missing_device(spec("cpu")), missing_device(spec("nvidia"))) == ("", "")
    monkeypatch.setattr(device, "is_apple_silicon", lambda: True)
    assert missing_device(spec("mlx")) == ""


class Matrix:
    """Stands in for a tensor whose device multiplies as ``product`` says."""

    def __init__(self, values: Any, product: Any = None) -> None:
        self.values, self._product = values, product

    def reshape(self, *shape: int) -> Matrix:
        return Matrix(self.values.reshape(shape), self._product)

    def __mod__(self, other: int) -> Matrix:
        return Matrix(self.values % other, self._product)

    def to(self, name: str) -> Matrix:
        return Matrix(self.values, self._product or (lambda a, b: a @ b)) if name != "cpu" else self

    def __matmul__(self, other: Matrix) -> Matrix:
        return Matrix((self._product or np.matmul)(self.values, other.values))

    def cpu(self) -> Matrix:
        return self

    def __eq__(self, other: object) -> Any:
        return self.values == (other.values if isinstance(other, Matrix) else other)

    __hash__ = None  # type: ignore[assignment]


def broken(a: Any, b: Any) -> Any:
    raise RuntimeError("CUDA error: no kernel image is available\nfor execution on the device")


def test_a_device_that_cannot_compute_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver object is no proof: the first operation may still fail."""
    fake = SimpleNamespace(float32="float32", __version__="2", arange=lambda n, dtype: None)
    monkeypatch.setitem(sys.modules, "torch", fake)
    moved = Matrix(np.arange(4096.0))
    monkeypatch.setattr(fake, "arange", lambda n, dtype: moved)
    monkeypatch.setattr(Matrix, "to", lambda self, name: Matrix(self.values, broken))
    with pytest.raises(
        ProviderUnavailableError, match=r"torch 2 cannot compute on cuda \(CUDA error: no kernel image is a"
    ):
        open_device(spec("nvidia"))
    monkeypatch.setattr(Matrix, "to", lambda self, name: Matrix(self.values, lambda a, b: a @ b + 1))
    with pytest.raises(ProviderUnavailableError, match="cuda:1 multiplies two small matrices wrongly"):
        open_device(spec("nvidia"), "cuda:1")
    monkeypatch.setattr(Matrix, "to", lambda self, name: self)
    assert open_device(spec("nvidia"), "cuda:1") == (fake, "cuda:1")


def test_the_most_memory_held_is_kept() -> None:
    held = iter([700, 900, 800])
    cuda = SimpleNamespace(
        reset_peak_memory_stats=lambda name: None, max_memory_allocated=lambda name: next(held)
    )
    runtime: dict[str, Any] = {}
    call = watched(SimpleNamespace(cuda=cuda), "cuda", lambda i, m, t: np.ones(1, np.float32), runtime)
    for expected in (700, 900, 900):
        call(ROW, ROW, ROW)
        assert runtime["device_peak_bytes"] == expected


class Counter:
    """torch's count of threads, and each change of it."""

    def __init__(self) -> None:
        self.count, self.set = 7, []

    def get_num_threads(self) -> int:
        return self.count

    def set_num_threads(self, count: int) -> None:
        self.count = count
        self.set.append(count)


@pytest.mark.parametrize("weights, seen", [(10, 1), (10**9, 3)])
def test_only_a_large_call_that_runs_alone_gets_threads(weights: int, seen: int) -> None:
    torch = Counter()
    threads = CpuThreads(torch, 3, weights)
    found = []
    call = threads.spread(lambda i, m, t: found.append(torch.count) or np.ones(1, np.float32))
    with threads.caller():
        call(ROW, ROW, ROW)
    assert found == [seen]
    assert torch.count == 7, "as it was before"
    call(ROW, ROW, ROW)
    assert found[1] == 1, "a thread of the runner computes on its own"


def test_a_failed_call_leaves_the_threads_too() -> None:
    torch = Counter()
    with pytest.raises(RuntimeError), CpuThreads(torch, 2, 1).caller():
        raise RuntimeError
    assert torch.count == 7


@local
def test_this_cpu_counts() -> None:
    torch = pytest.importorskip("torch")
    found, name = open_device(spec())
    assert (found, name) == (torch, "cpu")
    info = runtime_info(torch, "cpu", 2, forward="own")
    assert (info["library"], info["version"], info["threads"]) == ("torch", str(torch.__version__), 2)
    assert (info["device"], info["forward"]) == ("cpu", "own")


@local
def test_a_cuda_device_counts() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(ProviderUnavailableError, match="cannot compute on cuda"):
            open_device(spec("nvidia"))
        pytest.skip("needs a CUDA device")
    assert open_device(spec("nvidia")) == (torch, "cuda")
    assert runtime_info(torch, "cuda", 1)["device_name"]
