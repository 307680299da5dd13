"""What makes two embedders the same: the identity that caches, stores and results carry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rag_core.errors import InvalidArgumentError

__all__ = ["Fingerprint"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that changes a vector. Vectors of different fingerprints never meet.

    Attributes:
        provider: registry name, for example ``e5-small``.
        model: full model name, for example ``intfloat/multilingual-e5-small``.
        revision: version or digest of the weights.
        dim: width of a vector.
        dtype: ``fp32``, ``fp16``, ``bf16``, ``int8``, ``q4`` …
        pooling: ``mean``, ``cls``, ``service`` (decided by the server) …
        normalised: whether rows have length 1.
        query_template: text sent for a query, ``{text}`` in place of the text; for a service the
            role parameter, for example ``input_type=search_query``.
        document_template: the same for a document.
        max_tokens: longest input in tokens; 0 where there is no limit.
        batching: how texts share a call, where that changes the vectors.
    """

    provider: str
    model: str
    revision: str
    dim: int
    dtype: str
    pooling: str
    normalised: bool = True
    query_template: str = "{text}"
    document_template: str = "{text}"
    max_tokens: int = 0
    batching: str = "any"

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over all fields."""
        payload = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(payload.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values of all fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """The inverse of :meth:`as_dict`.

        Raises:
            InvalidArgumentError: a field is missing or unknown.
        """
        known = {f.name for f in fields(cls)}
        if set(values) != known:
            raise InvalidArgumentError(f"fingerprint has fields {sorted(values)}; accepted: {sorted(known)}")
        return cls(**values)

    def differences(self, other: Fingerprint) -> list[str]:
        """``field: mine / theirs`` for every field that differs."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{name}: {mine[name]!r} / {theirs[name]!r}" for name in mine if mine[name] != theirs[name]]

    def __str__(self) -> str:
        return f"{self.provider} ({self.model}, {self.dim} wide, {self.dtype}) #{self.digest}"
