from __future__ import annotations

import ctypes

import pytest

from rag_core import cuda
from rag_core.devices import why_not

STEPS = ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent", "cuMemAlloc", "cuMemsetD32")


class Driver:
    """The calls of the CUDA driver that are used, with one word of memory."""

    def __init__(self, devices: int = 1, fails: str = "", keeps: bool = True) -> None:
        self.devices, self.fails, self.keeps = devices, fails, keeps
        self.word, self.calls = 0, []

    def __getattr__(self, name: str):
        plain = name.removesuffix("_v2")

        def call(*values: object) -> int:
            self.calls.append(plain)
            if plain == self.fails:
                return 999
            target = values[0]._obj if hasattr(values[0], "_obj") else None  # type: ignore[attr-defined]
            if plain == "cuDeviceGetCount":
                target.value = self.devices
            elif plain in ("cuDevicePrimaryCtxRetain", "cuMemAlloc"):
                target.value = 64
            elif plain == "cuMemsetD32":
                self.word = values[1].value if self.keeps else 0  # type: ignore[attr-defined]
            elif plain == "cuMemcpyDtoH":
                target.value = self.word
            return 0

        return call


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch):
    def ask(driver: Driver | None) -> str:
        def open_library(name: str) -> Driver:
            if driver is None:
                raise OSError(name)
            return driver

        monkeypatch.setattr(ctypes, "CDLL", open_library)
        cuda.why_no_cuda.cache_clear()
        return why_not("nvidia")

    yield ask
    cuda.why_no_cuda.cache_clear()


def test_a_device_counts_after_it_has_kept_a_word(answer) -> None:
    driver = Driver()
    assert answer(driver) == ""
    assert "cuMemcpyDtoH" in driver.calls
    assert driver.calls[-3:] == ["cuMemFree", "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"]


def test_no_driver_and_no_device(answer) -> None:
    assert answer(None) == "no CUDA driver"
    assert answer(Driver(devices=0)) == "no CUDA device"


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_object_alone_does_not_count(answer, step: str) -> None:
    driver = Driver(fails=step)
    assert answer(driver) == f"no CUDA device that works: {step} answered 999"
    assert ("cuMemFree" in driver.calls) == (step == "cuMemsetD32")
    assert ("cuDevicePrimaryCtxRelease" in driver.calls) == (step in STEPS[3:])


def test_memory_that_forgets_does_not_count(answer) -> None:
    assert answer(Driver(keeps=False)) == "no CUDA device that works: its memory answered 0x0, not 0x5afec0de"


def test_the_driver_is_asked_once_a_process(answer) -> None:
    driver = Driver()
    answer(driver)
    asked = len(driver.calls)
    assert why_not("nvidia") == ""
    assert len(driver.calls) == asked
