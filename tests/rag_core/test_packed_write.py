"""Files written as they come are those of arrays written at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_core.index_table import ROW
from rag_core.packed import PackedStrings, write_array
from rag_core.packed_write import ArrayWriter, StringsWriter


@pytest.mark.parametrize("array", [np.arange(1000), np.zeros(0, np.float32), np.ones(70, ROW)])
def test_an_array_in_parts(tmp_path: Path, array: np.ndarray) -> None:
    write_array(tmp_path / "whole.npy", array)
    with ArrayWriter(tmp_path / "parts.npy", array.dtype) as writer:
        for start in range(0, len(array), 7):
            writer.append(array[start : start + 7])
        assert writer.length == len(array)
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize("strings", [[], ["", "a", "bé", "\ud800", "z" * 300]])
def test_strings_in_parts(tmp_path: Path, strings: list[str]) -> None:
    PackedStrings.pack(strings).save(tmp_path, "whole")
    with StringsWriter(tmp_path, "parts") as writer:
        for string in strings:
            writer.append([string.encode("utf-8", "surrogatepass")])
        writer.append([])
        assert len(writer) == len(strings)
    for part in ("blob", "offsets"):
        whole = (tmp_path / f"whole.{part}.npy").read_bytes()
        assert (tmp_path / f"parts.{part}.npy").read_bytes() == whole


def test_what_breaks_off_is_no_array(tmp_path: Path) -> None:
    def half() -> None:
        with ArrayWriter(tmp_path / "a.npy", np.int32) as writer:
            writer.append(np.arange(5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    with pytest.raises(ValueError, match=r"magic|pickled"):
        np.load(tmp_path / "a.npy", allow_pickle=False)
