"""Whether a CUDA device really computes: asked of the driver alone, without a framework."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ["why_no_cuda"]

LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
#: Written to the device and read back; any value that memory does not hold by accident.
WORD = 0x5AFEC0DE


@lru_cache(maxsize=1)
def why_no_cuda() -> str:
    """Why the first CUDA device cannot be used; empty when it can.

    A driver object is no proof: a container may have the library without the device, or a device that
    another process holds alone. So a word is written to the device's memory and read back, once a process
    (a few hundred milliseconds where there is a device, nothing where there is no driver).
    """
    for name in LIBRARIES:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        return _try(driver)
    return "no CUDA driver"


def _try(driver: Any) -> str:
    """Write, read and compare on the first device; the step that failed, or nothing."""
    count, device = ctypes.c_int(0), ctypes.c_int(0)
    context, memory = ctypes.c_void_p(), ctypes.c_uint64(0)
    found = ctypes.c_uint32(0)
    # what is passed by value needs its type said: a bare int is 32 bits wide
    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: driver.cuInit(ctypes.c_uint(0))),
        ("cuDeviceGetCount", lambda: driver.cuDeviceGetCount(ctypes.byref(count))),
        ("cuDeviceGet", lambda: driver.cuDeviceGet(ctypes.byref(device), ctypes.c_int(0))),
        ("cuDevicePrimaryCtxRetain", lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuCtxPushCurrent", lambda: driver.cuCtxPushCurrent_v2(context)),
        ("cuMemAlloc", lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4))),
        ("cuMemsetD32", lambda: driver.cuMemsetD32_v2(memory, ctypes.c_uint(WORD), ctypes.c_size_t(1))),
        ("cuMemcpyDtoH", lambda: driver.cuMemcpyDtoH_v2(ctypes.byref(found), memory, ctypes.c_size_t(4))),
    )
    failed = ""
    for name, step in steps:
        status = int(step())
        if name == "cuDeviceGetCount" and status == 0 and count.value < 1:
            return "no CUDA device"
        if status:
            failed = f"no CUDA device that works: {name} answered {status}"
            break
    if not failed and found.value != WORD:
        failed = f"no CUDA device that works: its memory answered {found.value:#x}, not {WORD:#x}"
    if memory.value:
        driver.cuMemFree_v2(memory)
    if context.value:
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return failed
