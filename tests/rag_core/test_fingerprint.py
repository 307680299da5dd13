from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from rag_core.errors import InvalidArgumentError
from rag_core.fingerprint import Fingerprint

BASE = Fingerprint("e5-small", "intfloat/multilingual-e5-small", "r1", 384, "q4", "mean")
OTHER = {
    "provider": "minilm", "model": "m", "revision": "r2", "dim": 768, "dtype": "fp32", "pooling": "cls",
    "normalised": False, "query_template": "query: {text}", "document_template": "passage: {text}",
    "max_tokens": 512, "batching": "alone",
}  # fmt: skip


def test_json_round_trip() -> None:
    assert Fingerprint.from_dict(json.loads(json.dumps(BASE.as_dict()))) == BASE


@pytest.mark.parametrize("name", [field.name for field in fields(Fingerprint)])
def test_every_field_changes_the_digest_and_stands_in_the_differences(name: str) -> None:
    """O18: another model, width, revision, prefix, normalisation or length is another identity."""
    changed = replace(BASE, **{name: OTHER[name]})
    assert changed != BASE
    assert changed.digest != BASE.digest
    assert BASE.differences(changed) == [f"{name}: {getattr(BASE, name)!r} / {OTHER[name]!r}"]


def test_no_difference_to_itself() -> None:
    assert BASE.differences(replace(BASE)) == []
    assert replace(BASE).digest == BASE.digest


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "from rag_core.fingerprint import Fingerprint as F; "
        "print(F('e5-small', 'intfloat/multilingual-e5-small', 'r1', 384, 'q4', 'mean').digest)"
    )
    root = Path(__file__).resolve().parents[2]
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == BASE.digest
    assert len(BASE.digest) == 16


@pytest.mark.parametrize("change", [{"extra": 1}, {"dim": None}])
def test_other_fields_are_refused(change: dict[str, object]) -> None:
    values = BASE.as_dict() | change
    if values["dim"] is None:
        del values["dim"]
    with pytest.raises(InvalidArgumentError, match=r"accepted: .*'batching', 'dim'"):
        Fingerprint.from_dict(values)


def test_str_names_model_width_and_digest() -> None:
    shown = str(BASE)
    assert shown == f"e5-small (intfloat/multilingual-e5-small, 384 wide, q4) #{BASE.digest}"
