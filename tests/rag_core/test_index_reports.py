"""Field reports that concern the index as a whole; the parts have tests of their own beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_core import Document, get_embedder, get_reranker
from rag_core.errors import IdentityMismatchError, InvalidArgumentError
from rag_core.index import Index


@pytest.fixture(scope="module", autouse=True)
def _no_flushing() -> Iterator[None]:
    """Flushing guards against power cuts, which no test makes; it is most of the time of a small write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def make(path: Path, texts: dict[str, str], embedder: Any = None) -> Index:
    documents = [Document(doc_id, text) for doc_id, text in texts.items()]
    return Index.build(path, documents, embedder or get_embedder("fake"))


def ids(result: Any) -> list[str]:
    return [hit.document.doc_id for hit in result]


def words_alone(index: Index, query: str) -> list[str]:
    return list(index.bm25.top(query, 50).doc_ids)


def test_o20_names_of_models_and_ids_are_never_names_of_files(
    tmp_path: Path, scripted: Callable[..., Any]
) -> None:
    """O20: also under the rules of Windows, for ids and texts of any kind."""
    odd = [
        "a:b",
        "../x",
        "CON",
        "trailing.",
        "図書館",
        "x" * 3000,
        "nul\0inside",
        "a/b\\c",
    ]
    reserved = set('<>:"/\\|?*') | {chr(i) for i in range(32)}
    for number, model in enumerate(("nomic-embed-text:v1.5", "BAAI/bge-m3", "BAAI_bge-m3", "../x")):
        folder = tmp_path / f"m{number}"
        index = Index.create(folder / "i", scripted(model=model, name=f"n{number}"))
        index.ingest(Document(doc_id, f"text of {doc_id}", doc_id) for doc_id in odd)
        assert set(index.documents) == set(odd)
        assert Index.open(folder / "i").documents["../x"].text == "text of ../x"
        names = [one.name for one in (folder / "i").rglob("*")]
        assert all(not set(name) & reserved and not name.endswith((".", " ")) for name in names)
        assert all(len(name) < 100 for name in names)
        assert [one.name for one in folder.iterdir()] == ["i"]


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        ({"a": "hello there", "b": "quite windy london"}, "windy london"),
        ({"b": "windy london"}, "windy"),
        ({"a": "rain", "b": "windy rain rain windy", "c": "rain", "d": "nothing"}, "windy rain"),
    ],
)
def test_o22_a_match_scores_above_zero_in_the_smallest_corpus(
    tmp_path: Path, texts: dict[str, str], query: str
) -> None:
    """O22."""
    index = make(tmp_path / "i", texts)
    ranking = index.bm25.top(query, 10)
    assert ranking[0].doc_id == "b"
    assert min(ranking.scores) > 0
    hit = next(hit for hit in index.hybrid_search(query) if hit.document.doc_id == "b")
    assert hit.ranks["bm25"] == 1


def test_o23_more_results_than_documents(tmp_path: Path) -> None:
    """O23: three for ten, and the same error for 0 and -1, with and without a reranker."""
    index = make(tmp_path / "i", {"a": "port one", "b": "port two", "c": "port three"})
    for k, n in ((10, 3), (3, 3), (2, 2)):
        assert len(index.hybrid_search("port", k)) == n
        assert len(index.hybrid_search("port", k, reranker=get_reranker("noop"))) == n
    vector = index.embedder.embed(["port"], role="query")[0]  # type: ignore[union-attr]
    for k in (0, -1):
        for ask in (
            lambda k: index.hybrid_search("port", k),
            lambda k: index.hybrid_search("port", candidate_pool=k),
            lambda k: index.store.search(vector, k),
            lambda k: index.bm25.top("port", k),
        ):
            with pytest.raises(InvalidArgumentError, match=f"k is {k}; accepted"):
                ask(k)


def test_o24_texts_without_blanks(tmp_path: Path) -> None:
    """O24: and the analyser is recorded."""
    texts = {
        "zh1": "北京是首都", "zh2": "上海靠近大海", "zh3": "猫喜欢吃鱼", "zh4": "他在图书馆看书",
        "ja": "図書館で本を読む", "ko": "도서관에서 책을 읽는다",
        "ru": "Он читает книгу в библиотеке", "mix": "GPU 显存不足",
    }  # fmt: skip
    index = make(tmp_path / "i", texts)
    for query, wanted in (
        ("图书馆", "zh4"),
        ("図書館", "ja"),
        ("도서관", "ko"),
        ("книгу", "ru"),
        ("gpu", "mix"),
        ("显存", "mix"),
    ):
        assert words_alone(index, query)[0] == wanted
        assert index.bm25.top(query, 1).scores[0] > 0
    assert words_alone(index, "图书馆") == ["zh4"]
    assert "script-segments" in index.stats()["lexical"]["analyser"]


def test_o25_forms_of_the_same_letter(tmp_path: Path, scripted: Callable[..., Any]) -> None:
    """O25: found in either form; the embedder gets the text as it is."""
    accented = [
        "café",
        "naïve",
        "Ångström",
        "señor",
        "crème",
        "Zürich",
        "maçã",
        "façade",
        "jalapeño",
        "Dvořák",
    ]
    forms = [
        (unicodedata.normalize(a, w), unicodedata.normalize(b, w))
        for w in accented
        for a, b in (("NFC", "NFD"), ("NFD", "NFC"))
    ]
    embedder = scripted()
    texts = {f"w{i}": stored for i, (stored, _) in enumerate(forms)}
    texts |= {"tr1": "İstanbul", "tr2": "Işık", "wide": "ＡＢＣ"}
    index = make(tmp_path / "i", texts, embedder)
    for i, (_, asked) in enumerate(forms):
        assert f"w{i}" in words_alone(index, asked)
    for query, wanted in (("istanbul", "tr1"), ("ışık", "tr2"), ("abc", "wide")):
        assert words_alone(index, query) == [wanted]
    sent = {text for call in embedder.asked for text in call}
    assert sent == {f"d {text}" for text in texts.values()}
    assert (
        index.ingest([Document("w0", unicodedata.normalize("NFD", "café"))]).updated == 1
    )  # other bytes, other text


ORDER = """
import sys
from rag_core import Document, get_embedder
from rag_core.index import Index
from pathlib import Path
documents = [Document(f"d{i:03d}", f"word{i}", "", {}) for i in range(120)]
rotated = documents[int(sys.argv[2]) % 120:] + documents[:int(sys.argv[2]) % 120]
index = Index.build(Path(sys.argv[1]), {d.doc_id: d for d in rotated}.values(), get_embedder("fake"))
for query in ("word7 word8 word9", "word1", "nothing"):
    print([(hit.document.doc_id, hit.score) for hit in index.hybrid_search(query, 100)])
print(index.digest())
"""


def test_o27_the_same_order_in_every_process(tmp_path: Path) -> None:
    """O27: whatever the seed of the hashes and the order in which documents came."""
    told = set()
    for seed in range(4):
        done = subprocess.run(
            [sys.executable, "-c", ORDER, str(tmp_path / f"i{seed}"), str(seed * 31)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(done.stdout)
    assert len(told) == 1


def test_o26_the_constant_of_the_fusion_counts(tmp_path: Path) -> None:
    """O26: what is accepted has an effect, what would have none is refused."""
    index = make(tmp_path / "i", {"a": "port one", "b": "port two", "c": "ferry"})
    small, large = (index.hybrid_search("port", rrf_k=k) for k in (1.0, 1000.0))
    assert small[0].score > 100 * large[0].score
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match="accepted"):
            index.hybrid_search("port", rrf_k=bad)


class Direct:
    """An embedder in which equal texts are equal vectors whatever their role."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embed(self, texts: Sequence[str], *, role: str = "document") -> Any:
        return self._inner.embed(texts, role="document")


def test_o28_nearest_first_and_the_same_fields_with_one_leg(
    tmp_path: Path, scripted: Callable[..., Any]
) -> None:
    """O28."""
    texts = {"d1": "the old port", "d2": "a night bus", "d3": "property tax", "d4": "the museum"}
    index = make(tmp_path / "i", texts, Direct(scripted()))
    first = index.hybrid_search("the old port")[0]
    assert first.document.doc_id == "d1"
    assert first.scores["vector"] == pytest.approx(1.0, abs=1e-6)
    assert first.ranks == {"vector": 1, "bm25": 1, "fused": 1}
    alone = index.hybrid_search("zzz")
    assert [hit.ranks["vector"] for hit in alone] == [1, 2, 3, 4]  # with a hit, all that are better
    assert all(set(hit.ranks) == set(hit.scores) == {"vector", "fused"} for hit in alone)
    assert all(isinstance(score, float) for hit in alone for score in hit.scores.values())


def test_o31_what_a_reranker_cut_stands_in_the_result(tmp_path: Path) -> None:
    """O31: a note of the reranker becomes a warning; windows and limits are its own."""
    from rag_core.reranking import NotedScores

    class Cutting:
        name = model = fingerprint = "cutting"
        target = "cpu"

        def is_available(self) -> bool:
            return True

        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            return NotedScores(
                [float(len(text)) for text in candidates], "1 of 4 pairs were cut to 512 tokens"
            )

    texts = {"long": "word " * 2000 + "answer", "a": "x", "b": "y", "c": "z"}
    result = make(tmp_path / "i", texts).hybrid_search("answer", reranker=Cutting())
    assert result.warnings == ("1 of 4 pairs were cut to 512 tokens",)
    assert ids(result)[0] == "long"


def test_o32_new_changed_and_deleted_documents(tmp_path: Path) -> None:
    """O32: found at once, or gone at once, in both legs and without opening again."""
    embedder = get_embedder("fake")
    index = make(tmp_path / "i", {"d1": "alpha"})
    index.ingest([Document("d2", "beta")])
    assert words_alone(index, "beta") == ["d2"]
    index.ingest([Document("d1", "gamma")])
    assert words_alone(index, "alpha") == []
    assert words_alone(index, "gamma") == ["d1"]
    for _ in range(2):
        index.ingest([Document("d1", "gamma"), Document("d2", "beta")])
        assert len(index) == index.store.count() == len(index.bm25) == 2
    index.delete(["d2"])
    vector = embedder.embed(["beta"], role="query")[0]
    assert index.store.search(vector, 5).doc_ids == ("d1",)
    assert words_alone(index, "beta") == []
    assert index.store.store.count() == 1


@pytest.mark.parametrize("dim", [1, 384, 1536, 3072])
def test_o33_another_width_is_refused_before_anything_is_embedded(
    tmp_path: Path, scripted: Callable[..., Any], dim: int
) -> None:
    """O33: the error names both and how to rebuild; every width works."""
    right, wrong = scripted(dim=dim), scripted("b", dim=16)
    make(tmp_path / "i", {"d1": "alpha"}, right)
    with pytest.raises(IdentityMismatchError, match=f"(?s){dim} wide.*16 wide.*rag rebuild --provider b"):
        Index.open(tmp_path / "i", wrong)
    assert wrong.asked == []
    assert ids(Index.open(tmp_path / "i", right).hybrid_search("alpha")) == ["d1"]
