"""How a provider is called in front of people: its spec string, with folders cut to their last part."""

from __future__ import annotations

from harness.results import CellKey
from rag_core.errors import RagCoreError
from rag_core.factory import SpecString

__all__ = ["provider_name", "short_label"]

NONE = "-"
#: Targets that a name tells; a CPU goes without saying, and a service's name says it.
SAID = ("mlx", "nvidia")


def provider_name(text: str, target: str = "") -> str:
    """``text``, a spec string, as short as a reader needs it: ``st:…/all-MiniLM-L6-v2``, ``minilm@mlx``.

    A folder keeps its last part and an address loses its scheme; names on a hub (``owner/name``) stay whole.
    What is no spec string is given back.
    """
    try:
        parsed = SpecString.parse(text)
    except RagCoreError:
        return text
    name = parsed.name + (f":{_cut(parsed.model)}" if parsed.model else "")
    if target in SAID:
        name += f"@{target}"
    options = "&".join(f"{option}={_cut(value)}" for option, value in parsed.options.items())
    return f"{name}?{options}" if options else name


def _cut(value: str) -> str:
    if "://" in value:
        return value.partition("://")[2].rstrip("/")
    is_path = value.startswith(("/", "./", "../", "~")) or value.count("/") > 1
    return f"…/{value.rstrip('/').rpartition('/')[2]}" if is_path else value


def short_label(key: CellKey, is_whole: bool = False) -> str:
    """``e5-small · hybrid+rerank · maxsim``; ``is_whole`` keeps folders as they were given."""
    provider = key.provider if is_whole else provider_name(key.provider, key.target)
    parts = [provider] if key.provider == key.pipeline else [provider, key.pipeline]
    if key.fusion not in (NONE, "rrf"):
        parts.append(key.fusion)
    if key.reranker != NONE:
        parts.append(key.reranker if is_whole else provider_name(key.reranker))
    return " · ".join(parts)
