"""The log of vectors on disk: against a dictionary, against damage, killed, and from several processes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core import segments, vectorlog
from rag_core.errors import InvalidArgumentError
from rag_core.protocols import Vectors
from rag_core.segments import ENTRY, KEYS, ROWS, SegmentWriter
from rag_core.vectorlog import VectorLog

ROOT = Path(__file__).resolve().parents[2]
DIM = 5
RECORD_BYTES = ENTRY.itemsize + 4 * DIM


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def vector(number: int, dim: int = DIM) -> Vectors:
    """Follows from the number, so that a wrong answer is seen without knowing what was written."""
    stream = hashlib.shake_256(f"vector {number}".encode()).digest(2 * dim)
    return np.frombuffer(stream, "<u2").astype(np.float32) - 32768


def vectors(numbers: list[int], dim: int = DIM) -> Vectors:
    return np.array([vector(number, dim) for number in numbers], np.float32).reshape(-1, dim)


def put(log: VectorLog, numbers: list[int]) -> int:
    return log.write([key(number) for number in numbers], vectors(numbers, log.dim))


def found(log: VectorLog, numbers: list[int]) -> set[int]:
    """The numbers that the log finds; each vector is compared bit for bit."""
    out = np.full((len(numbers), log.dim), np.nan, np.float32)
    hits, _ = log.read([key(number) for number in numbers], out)
    for number, row, hit in zip(numbers, out, hits):
        if hit:
            assert row.tobytes() == vector(number, log.dim).tobytes(), f"wrong vector of {number}"
        else:
            assert np.isnan(row).all(), f"the row of {number} was written without a hit"
    return {number for number, hit in zip(numbers, hits) if hit}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., VectorLog]]:
    made: list[VectorLog] = []

    def new(space: str = "space", dim: int = DIM, max_bytes: int = 1 << 24, **more: object) -> VectorLog:
        made.append(VectorLog(tmp_path, space, dim, max_bytes=max_bytes, **more))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for log in made:
        log.close()


def files(folder: Path, ending: str = "") -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{ending}") if path.is_file() and path.suffix != ".json")


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


# what is written comes back


def test_what_was_written_is_found_here_and_after_opening_again(make: Callable[..., VectorLog]) -> None:
    log = make()
    assert found(log, [1, 2, 3]) == set()
    assert put(log, [1, 2]) == 2
    assert found(log, [3, 2, 1]) == {1, 2}
    assert len(log) == 2
    assert log.n_bytes == 2 * RECORD_BYTES == size_bytes(log.folder)
    log.close()
    assert found(log, [1, 2]) == {1, 2}
    assert found(make(), [1, 2, 3]) == {1, 2}


def test_every_bit_of_a_float_is_kept(make: Callable[..., VectorLog]) -> None:
    bits = np.array([0x7FC00001, 0xFFFFFFFF, 0x80000000, 0x00000001, 0x7F800000], np.uint32)
    log = make()
    log.write([key(0)], bits.view(np.float32)[None])
    out = np.zeros((1, DIM), np.float32)
    assert log.read([key(0)], out)[0].all()
    assert out.view(np.uint32).tolist() == [bits.tolist()]


def test_rows_of_the_answer_can_be_chosen(make: Callable[..., VectorLog]) -> None:
    log = make()
    put(log, [1, 2])
    out = np.zeros((4, DIM), np.float32)
    hits, written_at = log.read([key(2), key(9), key(1)], out, [3, 0, 1])
    assert hits.tolist() == [True, False, True]
    assert written_at[1] == 0
    assert (out[[3, 1]] == vectors([2, 1])).all()
    assert not out[[0, 2]].any()


def test_no_key_and_no_record(make: Callable[..., VectorLog]) -> None:
    log = make()
    assert log.write([], np.zeros((0, DIM), np.float32)) == 0
    hits, _ = log.read([], np.zeros((0, DIM), np.float32))
    assert hits.shape == (0,)
    assert not log.folder.exists()


def test_thousands_at_once_over_many_segments(make: Callable[..., VectorLog]) -> None:
    """More than one merge of the index, more than one block of a segment."""
    log = make(max_bytes=20_000 * RECORD_BYTES)
    numbers = list(range(11_000))
    for start in range(0, len(numbers), 1000):
        put(log, numbers[start : start + 1000])
        assert found(log, [start, start + 999]) == {start, start + 999}
    assert len(files(log.folder, KEYS)) > 5
    order = random.Random(1).sample(range(12_000), 5000)
    assert found(log, order) == {number for number in order if number < 11_000}
    assert found(make(max_bytes=20_000 * RECORD_BYTES), order) == {n for n in order if n < 11_000}


def test_keys_with_the_same_first_word_are_told_apart(make: Callable[..., VectorLog]) -> None:
    log = make()
    keys = [b"same wor" + bytes([number]) * 24 for number in range(40)]
    log.write(keys[:20], vectors(list(range(20))))
    log.write(keys[20:39], vectors(list(range(20, 39))))
    out = np.zeros((40, DIM), np.float32)
    for reader in (log, make()):
        hits, _ = reader.read(keys, out)
        assert hits.tolist() == [True] * 39 + [False]
        assert (out[:39] == vectors(list(range(39)))).all()


def test_the_newest_of_several_records_counts(make: Callable[..., VectorLog]) -> None:
    log = make()
    for number in (1, 2, 3):
        log.write([key(0)], vectors([number]))
    out = np.zeros((1, DIM), np.float32)
    for reader in (log, make()):
        reader.read([key(0)], out)
        assert (out == vectors([3])).all()


@pytest.mark.parametrize("dim", [1, 2, 7, 384])
def test_any_width(make: Callable[..., VectorLog], dim: int) -> None:
    log = make(dim=dim)
    put(log, [1, 2, 3])
    assert found(log, [3, 4, 1]) == {1, 3}


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(0, 60), max_size=12, unique=True)),
        st.tuples(st.just("read"), st.lists(st.integers(0, 70), max_size=12)),
        st.tuples(st.sampled_from(["open", "clear", "wait", "other"]), st.just([])),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_behaves_like_a_dictionary(operations: list[tuple[str, list[int]]]) -> None:
    """Two logs on one folder, a clock that stands still unless told, a time to live of 10 s."""
    now = [1000.0]
    with tempfile.TemporaryDirectory() as folder:
        options = {"max_bytes": 64 * 16 * RECORD_BYTES, "ttl_s": 10.0, "clock": lambda: now[0]}
        logs = [VectorLog(Path(folder), "space", DIM, **options) for _ in range(2)]  # type: ignore[arg-type]
        model: dict[int, float] = {}
        for what, numbers in operations:
            if what == "write":
                put(logs[0], numbers)
                model |= dict.fromkeys(numbers, now[0])
            elif what == "read":
                assert found(logs[0], numbers) == {n for n in numbers if now[0] - model.get(n, -1e9) <= 10}
            elif what == "open":
                logs[0].close()
            elif what == "clear":
                logs[0].clear()
                model.clear()
                # a log that has the records mapped may serve them until it misses or writes
                found(logs[1], [1000])
            elif what == "wait":
                now[0] += 4
            else:
                logs.reverse()
        for log in logs:
            assert found(log, list(range(61))) == {n for n, at in model.items() if now[0] - at <= 10}
            log.close()


# time to live, bound


def test_expired_records_are_misses_and_can_be_written_again(make: Callable[..., VectorLog]) -> None:
    now = [0.0]
    log = make(ttl_s=60.0, clock=lambda: now[0])
    put(log, [1])
    now[0] = 60.0
    assert found(log, [1]) == {1}
    now[0] = 60.5
    assert found(log, [1]) == set()
    assert log.expired > 0
    put(log, [1])
    assert found(log, [1]) == {1}
    assert found(make(ttl_s=60.0, clock=lambda: now[0]), [1]) == {1}


def test_the_bound_holds_and_the_oldest_go_first(make: Callable[..., VectorLog]) -> None:
    max_bytes = 200 * RECORD_BYTES
    log = make(max_bytes=max_bytes)
    for number in range(700):
        put(log, [number])
        assert size_bytes(log.folder) <= max_bytes
    assert log.dropped > 0
    kept = sorted(found(log, list(range(700))))
    assert kept == list(range(kept[0], 700)), "what is left is the newest part without a gap"
    assert len(kept) > 150
    assert sorted(found(make(max_bytes=max_bytes), list(range(700)))) == kept


def test_a_batch_larger_than_the_bound(make: Callable[..., VectorLog]) -> None:
    log = make(max_bytes=64 * RECORD_BYTES)
    assert put(log, list(range(500))) == 500
    assert size_bytes(log.folder) <= 64 * RECORD_BYTES
    assert 499 in found(log, list(range(500)))


def test_the_bound_covers_all_spaces_of_a_folder(make: Callable[..., VectorLog], tmp_path: Path) -> None:
    max_bytes = 100 * RECORD_BYTES
    first, second = make("a", max_bytes=max_bytes), make("b", max_bytes=max_bytes)
    put(first, list(range(80)))
    first.close()
    put(second, list(range(80)))
    assert size_bytes(tmp_path) <= max_bytes
    assert len(found(second, list(range(80)))) > 60
    assert len(found(first, list(range(80)))) < 40


def test_a_bound_that_holds_nothing_is_refused(make: Callable[..., VectorLog]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{64 * RECORD_BYTES} or more"):
        make(max_bytes=64 * RECORD_BYTES - 1)


def test_too_many_small_segments(make: Callable[..., VectorLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locks do not work each process adds a segment; their number is bounded too."""
    monkeypatch.setattr(segments, "_locked", lambda file, *, must: not must)
    monkeypatch.setattr(vectorlog, "MOST_SEGMENTS", 5)
    for number in range(12):
        log = make()
        put(log, [number])
        log.close()
    left = found(make(), list(range(12)))
    assert left == {7, 8, 9, 10, 11}


# other writers on the same folder


def test_two_logs_see_each_other_and_write_apart(make: Callable[..., VectorLog]) -> None:
    one, two = make(), make()
    put(one, [1])
    put(two, [2])
    assert len(files(one.folder, KEYS)) == 2
    put(one, [3])
    assert found(one, [1, 2, 3]) == found(two, [1, 2, 3]) == {1, 2, 3}


def test_a_segment_goes_on_with_the_next_writer(make: Callable[..., VectorLog]) -> None:
    for number in range(5):
        log = make()
        put(log, [number])
        log.close()
    assert len(files(log.folder, KEYS)) == 1
    assert found(make(), list(range(6))) == {0, 1, 2, 3, 4}


def test_what_the_last_owner_wrote_just_before_the_adoption(
    make: Callable[..., VectorLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = make(), make()
    put(one, [1])
    real = SegmentWriter.adopt

    def late(folder: Path, name: str, dim: int) -> SegmentWriter | None:
        put(one, [2, 3])
        one.close()
        return real(folder, name, dim)

    monkeypatch.setattr(SegmentWriter, "adopt", late)
    put(two, [4])
    assert found(two, [1, 2, 3, 4]) == {1, 2, 3, 4}
    assert len(files(two.folder, KEYS)) == 1


def test_clear_is_noticed_by_others(make: Callable[..., VectorLog]) -> None:
    one, two = make(), make()
    put(one, [1])
    assert found(two, [1]) == {1}
    put(two, [2])
    one.clear()
    assert files(one.folder) == []
    assert found(one, [1, 2]) == set()
    assert found(two, [1]) == {1}, "what is mapped stays readable while nothing is missing"
    assert found(two, [1, 2]) <= {1}
    assert found(two, [1, 2]) == set()
    put(two, [3])  # its segment is gone: it makes a new one
    assert found(one, [1, 2, 3]) == {3}


def test_a_segment_removed_before_it_was_mapped(make: Callable[..., VectorLog]) -> None:
    one, two = make(), make()
    put(one, [1])
    put(one, [2])
    assert found(two, [1]) == {1}
    put(one, [3])
    assert two._look()
    for _, segment in two._segments.values():  # as after an opening that has not read any row yet
        segment._rows = segment._rows[:0]
    one.clear()
    assert found(two, [1, 2]) == set()


def test_a_writer_whose_segment_was_removed_starts_another(make: Callable[..., VectorLog]) -> None:
    log = make()
    put(log, [1])
    for path in files(log.folder):
        path.unlink()
    put(log, [2])
    assert found(make(), [1, 2]) == {2}


def test_files_that_are_not_ours_are_left_alone(make: Callable[..., VectorLog]) -> None:
    log = make()
    put(log, [1])
    stranger = log.folder / "notes.txt"
    stranger.write_text("keep")
    orphan = log.folder / f"{'0' * 16}-1-00000000{KEYS}"
    orphan.write_bytes(bytes(48))
    assert found(make(), [1, 2]) == {1}
    log.clear()
    assert stranger.read_text() == "keep"


def test_many_threads(make: Callable[..., VectorLog]) -> None:
    log = make(max_bytes=1 << 22)
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 150):
                put(log, [number])
                assert found(log, [number, first, 99_999]) == {number, first}
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found(make(), [1000 * n + i for n in range(4) for i in range(150)])) == 600


#: The functions above, for processes of their own.
PRELUDE = """
import hashlib, json, os, random, select, signal, sys, time
from pathlib import Path
import numpy as np
from rag_core.vectorlog import VectorLog
DIM = 5
def key(number):
    return hashlib.sha256(str(number).encode()).digest()
def vector(number):
    stream = hashlib.shake_256(f"vector {number}".encode()).digest(2 * DIM)
    return np.frombuffer(stream, "<u2").astype(np.float32) - 32768
def put(log, numbers):
    return log.write([key(n) for n in numbers], np.array([vector(n) for n in numbers]))
def open_log():
    return VectorLog(Path(sys.argv[1]), "space", DIM, max_bytes=1 << 24)
"""


def start(code: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, str(folder), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def test_processes_that_write_at_once(make: Callable[..., VectorLog], tmp_path: Path) -> None:
    code = """
log, first = open_log(), int(sys.argv[2])
for start in range(first, first + 1200, 8):
    put(log, range(start, start + 8))
"""
    running = [start(code, tmp_path, str(10_000 * n)) for n in range(3)]
    log = make()
    while any(process.poll() is None for process in running):
        found(log, [10_000 * n + i for n in range(3) for i in range(0, 1200, 7)])
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert len(found(log, [10_000 * n + i for n in range(3) for i in range(1200)])) == 3600
    assert 1 <= len(files(log.folder, KEYS)) <= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment(make: Callable[..., VectorLog], tmp_path: Path) -> None:
    """Twenty writers, each killed in the middle of its work; what they had told to be written is there."""
    code = """
choose = random.Random(3)
told = []
for turn in range(20):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        log, number = open_log(), 100_000 * turn
        while True:
            numbers = range(number, number + choose.randrange(1, 60))
            put(log, numbers)
            number = numbers[-1] + 1
            os.write(theirs, number.to_bytes(8, "little"))
    os.close(theirs)
    os.read(ours, 8)
    time.sleep(choose.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    last = b""
    while part := os.read(ours, 8 << 10):
        last = part[-8:]
    told.append(int.from_bytes(last, "little") - 100_000 * turn if last else 1)
print(json.dumps(told))
"""
    output, _ = start(code, tmp_path).communicate()
    told: list[int] = json.loads(output)
    assert len(told) == 20
    log = make()
    for turn, count in enumerate(told):
        numbers = list(range(100_000 * turn, 100_000 * turn + count + 200))
        hits = found(log, numbers)
        assert hits >= set(numbers[:count])
        assert hits == set(numbers[: len(hits)]), "records come in the order in which they were written"
    assert log.damaged == 0
    put(log, [-1])
    assert found(make(), [-1]) == {-1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_segment_of_its_parent_alone(
    make: Callable[..., VectorLog], tmp_path: Path
) -> None:
    code = """
log = open_log()
put(log, [1])
child = os.fork()
put(log, [2] if child else [3])
if child:
    assert os.waitpid(child, 0)[1] == 0
    put(log, [4])
"""
    process = start(code, tmp_path)
    process.communicate()
    assert process.returncode == 0
    log = make()
    assert found(log, [1, 2, 3, 4]) == {1, 2, 3, 4}
    assert len(files(log.folder, KEYS)) == 2
    assert log.damaged == 0


# damage


def test_a_torn_end_is_no_record(make: Callable[..., VectorLog], tmp_path: Path) -> None:
    """Both files cut at every place of their last two records."""
    log = make()
    put(log, [1, 2, 3])
    log.close()
    whole = {path.suffix: path.read_bytes() for path in files(log.folder)}
    name = files(log.folder, KEYS)[0].stem
    for ending, size in ((KEYS, 48), (ROWS, 20)):
        for cut in range(2 * size + 1):
            space = tmp_path / f"cut{ending}{cut}"
            space.mkdir()
            for other, content in whole.items():
                kept = content[: len(content) - cut] if other == ending else content
                (space / f"{name}{other}").write_bytes(kept)
            torn = VectorLog(tmp_path, space.name, DIM, max_bytes=1 << 24)
            left = 3 - -(-cut // size)
            assert found(torn, [1, 2, 3]) == set(range(1, left + 1))
            put(torn, [7, 8])
            assert found(torn, [1, 2, 3, 7, 8]) == {*range(1, left + 1), 7, 8}
            torn.close()
            again = VectorLog(tmp_path, space.name, DIM, max_bytes=1 << 24)
            assert found(again, [1, 2, 3, 7, 8]) == {*range(1, left + 1), 7, 8}
            assert again.damaged == 0
            assert len(files(space, KEYS)) == 1
            again.close()


def test_damaged_bytes_never_give_a_wrong_vector(make: Callable[..., VectorLog], tmp_path: Path) -> None:
    log = make()
    numbers = list(range(40))
    put(log, numbers)
    log.close()
    choose = random.Random(5)
    lost = 0
    for turn in range(100):
        space = tmp_path / f"damaged-{turn}"
        shutil.copytree(log.folder, space)
        for _ in range(choose.choice([1, 1, 2, 8])):
            path = choose.choice(files(space))
            content = bytearray(path.read_bytes())
            length = choose.choice([1, 1, 4, 100])
            at = choose.randrange(len(content) - length)
            content[at : at + length] = choose.choice(
                [bytes(length), b"\xff" * length, choose.randbytes(length)]
            )
            path.write_bytes(content)
        hurt = VectorLog(tmp_path, space.name, DIM, max_bytes=1 << 24)
        left = found(hurt, numbers)
        lost += len(numbers) - len(left)
        put(hurt, sorted(set(numbers) - left))
        assert found(hurt, numbers) == set(numbers), "written again, found again"
        hurt.close()
        shutil.rmtree(space)
    assert lost > 100


def test_damage_is_counted(make: Callable[..., VectorLog]) -> None:
    log = make()
    put(log, [1, 2])
    log.close()
    path = files(log.folder, ROWS)[0]
    content = bytearray(path.read_bytes())
    content[3] ^= 0x80  # the sign of the first float
    path.write_bytes(content)
    log = make()
    assert found(log, [1, 2]) == {2}
    assert log.damaged > 0


# a disk that refuses


@pytest.mark.parametrize(
    "dim, limit_bytes, left",
    [
        pytest.param(32, 128 * 30 + 7, 20, id="within a row"),
        pytest.param(DIM, 48 * 30 + 7, 30, id="within an entry"),
    ],
)
def test_a_full_disk_warns_once_and_reading_goes_on(
    make: Callable[..., VectorLog], caplog: pytest.LogCaptureFixture, dim: int, limit_bytes: int, left: int
) -> None:
    """A real limit of the size of a file, met in the middle of a write; whole records stay."""
    resource = pytest.importorskip("resource", reason="needs limits of a process")
    log = make(dim=dim)
    put(log, list(range(20)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        assert put(log, list(range(20, 50))) == 0
        assert put(log, [60]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not log.is_writable
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(log.folder) in caplog.text
    assert found(log, list(range(50))) == set(range(left))
    assert size_bytes(log.folder) == left * (48 + 4 * dim), "half-written records were taken back"
    other = make(dim=dim)
    put(other, [99])
    assert found(other, [*range(50), 99]) == {*range(left), 99}


def test_a_folder_that_cannot_be_made(
    make: Callable[..., VectorLog], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "space").write_text("a file is in the way")
    log = make()
    assert put(log, [1]) == 0
    assert put(log, [1]) == 0
    assert found(log, [1]) == set()
    assert len(caplog.records) == 1


def test_an_interrupted_write_loses_nothing_that_was_written(
    make: Callable[..., VectorLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes between the row and its entry, then after half of the entries."""
    log = make()
    put(log, [1])
    real = segments._write

    def interrupted(after: int, keep: int) -> Callable[..., None]:
        calls = iter(range(9))

        def write(file: int, values: np.ndarray) -> None:  # type: ignore[type-arg]
            if next(calls) == after:
                real(file, values[:keep])
                raise KeyboardInterrupt
            real(file, values)

        return write

    for numbers, after, keep in (([2, 3], 0, 1), ([4, 5], 1, 0), ([6, 7], 1, 1)):
        monkeypatch.setattr(segments, "_write", interrupted(after, keep))
        with pytest.raises(KeyboardInterrupt):
            put(log, numbers)
        monkeypatch.setattr(segments, "_write", real)
        put(log, [10 * numbers[0]])
    expected = {1, 6, 20, 40, 60}
    assert found(log, [*range(10), 20, 40, 60]) == expected
    assert found(make(), [*range(10), 20, 40, 60]) == expected


def test_about_says_what_the_folder_holds(make: Callable[..., VectorLog]) -> None:
    log = make(about='{"model": "a"}')
    put(log, [1])
    assert json.loads((log.folder / "about.json").read_text()) == {"model": "a"}
