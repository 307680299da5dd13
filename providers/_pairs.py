"""A query and a candidate as one row of token ids, built by the pair template of the model's tokenizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from providers._rows import Row
from rag_core.embedding import without_lone_surrogates
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError

__all__ = ["Pair", "PairEncoder"]

#: Room for the candidate that a window must leave after the template and half of it for the query.
LEAST_ROOM_TOKENS = 4


class Pair(NamedTuple):
    """One candidate: the rows to score (several when it is read in windows), and whether text was lost."""

    rows: list[Row]
    is_cut: bool


class PairEncoder:
    """Makes rows of at most ``max_tokens`` tokens.

    The query keeps at most half of the places that the template leaves, the candidate gets the rest,
    and the template's own tokens always stand, the last one included. Ids of the template that turn up
    in a text are dropped: a text that spells ``</s>`` must not end the candidate early.

    Attributes:
        pad: id that fills short rows.
    """

    def __init__(
        self,
        owner: str,
        tokenizer: Any,
        max_tokens: int,
        windows: int = 0,
        pad: int | None = None,
        has_types: bool = True,
    ) -> None:
        """``windows``: tokens of a candidate scored at once; 0 cuts a long candidate instead. Without
        ``has_types`` the model was trained on types that are all 0, whatever the template says.

        Raises:
            ProviderUnavailableError: the tokenizer has no template for pairs.
            InvalidArgumentError: ``max_tokens`` leaves no room beside the template.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters, not the token
        self._tokenizer, self._windows = tokenizer, windows
        self._before, self._between, self._after, self._type_a, self._type_b = _template(
            owner, tokenizer, has_types
        )
        special = [*self._before.ids, *self._between.ids, *self._after.ids]
        self._special = frozenset(special)
        self._places = max_tokens - len(special)
        if self._places < 2 * LEAST_ROOM_TOKENS:
            raise InvalidArgumentError(
                f"{owner}: option max_tokens is {max_tokens}; accepted: from "
                f"{len(special) + 2 * LEAST_ROOM_TOKENS} ({len(special)} go to the template)"
            )
        if pad is None:
            pad = next(
                (i for name in ("[PAD]", "<pad>") if (i := tokenizer.token_to_id(name)) is not None), 0
            )
        self.pad = pad

    def pairs(self, query: str, candidates: Sequence[str]) -> Iterator[Pair]:
        """One pair per candidate, in order."""
        asked = self._ids(query)
        kept = asked[: self._places // 2]
        query_is_cut = len(kept) < len(asked)
        head = [*self._before.ids, *kept, *self._between.ids]
        head_types = [*self._before.types, *[self._type_a] * len(kept), *self._between.types]
        room = self._places - len(kept)
        for candidate in candidates:
            parts, is_cut = self._parts(self._ids(candidate), room)
            rows = [
                Row(
                    [*head, *part, *self._after.ids],
                    [*head_types, *[self._type_b] * len(part), *self._after.types],
                )
                for part in parts
            ]
            yield Pair(rows, is_cut or query_is_cut)

    def _parts(self, ids: list[int], room: int) -> tuple[list[list[int]], bool]:
        """The pieces of a candidate to score, and whether its end is in none of them.

        Windows overlap by a quarter and are spread evenly, so that the last one is as long as the others.
        """
        size = min(self._windows, room) if self._windows else room
        if len(ids) <= size:
            return [ids], False
        if not self._windows:
            return [ids[:size]], True
        step = max(1, size - size // 4)
        count = 1 + math.ceil((len(ids) - size) / step)
        starts = [round(i * (len(ids) - size) / (count - 1)) for i in range(count)]
        return [ids[start : start + size] for start in starts], False

    def _ids(self, text: str) -> list[int]:
        clean = without_lone_surrogates(text)
        ids: list[int] = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return ids if self._special.isdisjoint(ids) else [i for i in ids if i not in self._special]


def _template(owner: str, tokenizer: Any, has_types: bool) -> tuple[Row, Row, Row, int, int]:
    """What the tokenizer puts before, between and after two texts, and the type ids of both."""
    made = tokenizer.encode("a", "a")
    sides = made.sequence_ids
    first = [i for i, side in enumerate(sides) if side == 0]
    second = [i for i, side in enumerate(sides) if side == 1]
    if not first or not second or None not in sides or first[-1] > second[0]:
        raise ProviderUnavailableError(
            owner,
            "tokenizer.json has no template for pairs (a post_processor with the texts A and B in order)",
        )

    types = made.type_ids if has_types else [0] * len(sides)

    def cut(start: int, stop: int) -> Row:
        return Row(made.ids[start:stop], types[start:stop])

    ends = second[-1] + 1
    return (
        cut(0, first[0]),
        cut(first[-1] + 1, second[0]),
        cut(ends, len(sides)),
        types[first[0]],
        types[second[0]],
    )
