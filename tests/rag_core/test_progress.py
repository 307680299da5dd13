from __future__ import annotations

from rag_core.progress import listening, tell


def test_only_who_listens_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    tell("nobody", 1, 2)
    with listening(lambda *said: seen.append(said)):
        tell("load", 1, 2)
        with listening(None):
            tell("silenced", 1, 2)
        tell("load", 2, 2)
    tell("nobody", 2, 2)
    assert seen == [("load", 1, 2), ("load", 2, 2)]
