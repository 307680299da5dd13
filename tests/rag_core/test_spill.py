"""Arrays in a file and back; sorted strings merged in pieces."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core import spill as module
from rag_core.spill import Spill, merge, write_run

STRINGS = st.sets(st.binary(max_size=3), max_size=12).map(sorted)


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_arrays_come_back_in_parts(tmp_path: Path, in_memory: int) -> None:
    with Spill(tmp_path, in_memory) as spill:
        first = spill.write(np.arange(100, dtype=np.int32))
        second = spill.write(np.zeros((0,), np.float32))
        third = spill.write(np.arange(10.0))
        assert spill.read(third, np.float64, 2, 5).tolist() == [2, 3, 4]
        assert spill.read(first, np.int32, 98, 100).tolist() == [98, 99]
        assert spill.read(second, np.float32, 0, 0).size == 0
        assert spill.write(np.ones(1, np.uint8)) == 480
        assert list(tmp_path.iterdir()) == []  # a file without a name


@given(st.lists(STRINGS, max_size=5), st.integers(1, 20), st.integers(1, 3))
def test_merged_pieces_are_everything_in_order(runs: list[list[bytes]], held: int, fewest: int) -> None:
    with TemporaryDirectory() as folder, Spill(Path(folder)) as spill, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST", fewest)
        written = [write_run(spill, strings) for strings in runs]
        found: list[tuple[bytes, int, int]] = []
        for piece in merge(written, held):
            assert piece.strings
            assert not found or found[-1][0] < piece.strings[0]  # no string stands in two pieces
            places = [(run, row) for run, start, stop in piece.parts for row in range(start, stop)]
            found += [(string, *places[at]) for string, at in zip(piece.strings, piece.order.tolist())]
    expected = [(string, run, row) for run, strings in enumerate(runs) for row, string in enumerate(strings)]
    assert found == sorted(expected)
