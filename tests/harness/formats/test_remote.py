"""Sets of ir_datasets and of the hub, through stand-ins for both packages: nothing is downloaded."""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest

from harness.datasets import absolute_data, load_dataset, with_format
from harness.formats import hub
from harness.formats.folders import Parts
from harness.formats.reading import DataError
from rag_core.errors import (
    InvalidArgumentError,
    MissingExtraError,
    ProviderUnavailableError,
    UnknownNameError,
)

Doc = namedtuple("Doc", "doc_id title text")
Topic = namedtuple("Topic", "query_id title narrative")
Judged = namedtuple("Judged", "query_id doc_id relevance iteration")


def refused():
    raise OSError("cannot connect")
    yield


def irds_package(**parts):
    found = SimpleNamespace(
        docs_iter=lambda: iter([Doc("d1", "T", "The words of it are in English.")]),
        queries_iter=lambda: iter([Topic("1", "which words", "long")]),
        qrels_iter=lambda: iter([Judged("1", "d1", 2, "0")]),
        has_docs=lambda: True,
        has_queries=lambda: True,
        has_qrels=lambda: True,
        docs_lang=lambda: "en",
    )
    vars(found).update(parts)
    registry = {"cran/a": found, "cran/a/test": found}
    return SimpleNamespace(load=registry.__getitem__, registry=registry)


def use(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, name, package)


def test_a_set_of_ir_datasets(monkeypatch):
    use(monkeypatch, "ir_datasets", irds_package())
    data = load_dataset("irds:cran/a")
    assert (data.name, data.path, data.languages) == ("cran-a", "irds:cran/a", ("en",))
    assert (data.documents[0].title, data.documents[0].text) == ("T", "The words of it are in English.")
    assert data.queries[0].text == "which words"
    assert data.relevance == {"1": {"d1": 2}}


def test_what_goes_wrong_with_ir_datasets(monkeypatch):
    use(monkeypatch, "ir_datasets", irds_package(docs_iter=refused))
    with pytest.raises(ProviderUnavailableError, match=r"OSError: 'cannot connect'.*IR_DATASETS_HOME"):
        load_dataset("irds:cran/a")
    with pytest.raises(UnknownNameError, match=r"no set 'cran/b'.*did you mean 'cran/a'"):
        load_dataset("irds:cran/b")
    use(monkeypatch, "ir_datasets", irds_package(has_qrels=lambda: False))
    with pytest.raises(DataError, match=r"irds:cran/a: has no qrels; .*\['cran/a/test'\]"):
        load_dataset("irds:cran/a")
    use(monkeypatch, "ir_datasets", None)
    with pytest.raises(MissingExtraError, match=r"rag-core-bench\[irds\]"):
        load_dataset("irds:cran/a")


@pytest.fixture
def snapshot(tmp_path):
    rows = {
        "corpus": [{"_id": "d1", "text": "words"}],
        "queries": [{"_id": "q1", "text": "which"}],
        "qrels/test": [{"query-id": "q1", "corpus-id": "d1", "score": 1}],
    }
    for name, lines in rows.items():
        path = tmp_path / "part" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def hub_package(folder, asked, network=True, cached=False):
    def snapshot_download(repository, local_files_only=False, **options):
        asked.append((repository, local_files_only, options["repo_type"]))
        if (local_files_only and not cached) or (not local_files_only and not network):
            raise OSError("no route\nmore")
        return str(folder)

    return SimpleNamespace(snapshot_download=snapshot_download)


def test_a_set_of_the_hub_is_read_as_the_folder_it_is(monkeypatch, snapshot):
    asked = []
    use(monkeypatch, "huggingface_hub", hub_package(snapshot, asked))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    data = load_dataset("hf:me/set/part")
    assert asked == [("me/set", False, "dataset")]
    assert (data.name, data.path, data.relevance) == ("set", "hf:me/set/part", {"q1": {"d1": 1}})


def test_offline_the_cache_is_used_and_what_is_missing_is_said(monkeypatch, snapshot):
    asked = []
    use(monkeypatch, "huggingface_hub", hub_package(snapshot, asked, cached=True))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load_dataset("hf:me/set/part").name == "set"
    assert [local for _, local, _ in asked] == [True]
    use(monkeypatch, "huggingface_hub", hub_package(snapshot, asked))
    with pytest.raises(ProviderUnavailableError, match=r"environment forbids the network.*--data"):
        load_dataset("hf:me/set/part")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    use(monkeypatch, "huggingface_hub", hub_package(snapshot, asked, network=False))
    with pytest.raises(ProviderUnavailableError, match=r"OSError: no route\).*hub can be reached"):
        load_dataset("hf:me/set/part")


@pytest.mark.parametrize("name", ["set", "/set", "me/set/../../x"])
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="accepted: hf:OWNER/NAME"):
        hub.load(name, lambda folder: Parts((), (), (), None))


def test_the_form_may_stand_before_the_path(monkeypatch, snapshot):
    monkeypatch.chdir(snapshot)
    expected = f"mteb:{snapshot / 'part'}"
    assert (
        with_format("part", "mteb")
        == with_format("mteb:part", "mteb")
        == absolute_data("mteb:part")
        == expected
    )
    assert load_dataset(expected).path == expected
    assert with_format("cran/a", "irds") == "irds:cran/a"
    assert absolute_data("mini") == "mini"
    with pytest.raises(UnknownNameError, match="no data format 'mtep'; did you mean 'mteb'"):
        with_format("part", "mtep")
    with pytest.raises(InvalidArgumentError, match="--format beir with --data 'mteb:part'"):
        with_format("mteb:part", "beir")
