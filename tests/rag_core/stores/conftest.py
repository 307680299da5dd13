"""Metadata and filters of every shape, for the translations and for the databases themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

TEXTS = ("", "a", "b", "it's", 'say "x"', "图书馆", "s", "1", "a\\b", "%_", "𝔘")
NUMBERS = (
    0,
    1,
    -1,
    2,
    1.0,
    1.5,
    -0.0,
    1e300,
    2**53 - 1,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**63,
    2**70,
    5e-324,
)
#: Names that a database may take for something of its own.
FIELDS = ("lang", "year", "a.b", "it's", 'q"', "0", "", "#x", "_json", "chroma:document", "名", "a b", "id")
SCALARS = st.sampled_from((None, True, False, *TEXTS, *NUMBERS))
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=1)
METADATA = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)

_SIGNS = st.one_of(
    st.tuples(st.sampled_from(("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")), VALUES),
    st.tuples(st.sampled_from(("$in", "$nin")), st.lists(VALUES, max_size=3)),
)
_CONDITIONS = st.lists(_SIGNS, min_size=1, max_size=2).map(dict) | SCALARS | st.lists(SCALARS, max_size=2)
_FLAT = st.dictionaries(st.sampled_from(FIELDS), _CONDITIONS, max_size=2)
WHERES = st.recursive(
    _FLAT,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$or": parts}),
        inner.map(lambda part: {"$not": part}),
    ),
    max_leaves=5,
)
# a field of the language that begins with "$" is an operator, and metadata may still have such a field
ROWS = st.lists(METADATA | METADATA.map(lambda fields: {**fields, "$x": 1}), min_size=1, max_size=8)


@pytest.fixture(scope="session")
def shapes() -> SimpleNamespace:
    """``rows`` and ``wheres``: strategies."""
    return SimpleNamespace(rows=ROWS, wheres=WHERES, metadata=METADATA)
