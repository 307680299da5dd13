"""A corpus, an embedder that keeps a diary, and one small Ray cluster for all tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...ray_cluster import CPUS, two_nodes

PLUGIN = '''
from __future__ import annotations
import os, time
from dataclasses import replace
from pathlib import Path
from providers.fake import FakeEmbedder
from rag_core.registry import Spec


class Diary(FakeEmbedder):
    """Writes down every text that it has made a vector of: one line, one append."""

    def _encode(self, texts, role):
        time.sleep(float(os.environ["DIARY_WAIT_S"]) if (Path(os.environ["DIARY"]) / "slow").exists() else 0)
        found = super()._encode(texts, role)
        with (Path(os.environ["DIARY"]) / str(os.getpid())).open("a") as stream:
            stream.write("".join(repr(text) + chr(10) for text in texts))
        return found


def load(spec, **options):
    from providers.fake import load as load_fake
    from rag_core.registry import EMBEDDERS
    fake = load_fake(EMBEDDERS.find("fake")[0])
    return Diary(replace(fake.fingerprint, provider="diary", revision=os.environ.get("DIARY_REVISION", "1")))


def register(registries):
    registries.embedders.add(Spec("diary", "hash-64", "cpu", 64, "diary_plugin:load", auto=False))
'''


class Diary:
    """What the embedders of all processes have written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def slow(self, *, on: bool) -> None:
        (self.folder / "slow").touch() if on else (self.folder / "slow").unlink(missing_ok=True)

    def texts(self) -> list[str]:
        files = [path for path in sorted(self.folder.iterdir()) if path.name != "slow"]
        return [line for path in files for line in path.read_text().splitlines()]

    def processes(self) -> list[int]:
        return [int(path.name) for path in self.folder.iterdir() if path.name != "slow"]


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Diary]:
    """The embedder ``diary`` in this process and all that it starts."""
    code = tmp_path_factory.mktemp("plugin")
    (code / "diary_plugin.py").write_text(PLUGIN)
    folder = tmp_path_factory.mktemp("diary")
    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join([str(code), root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        patch.setenv("PYTHONPATH", path)
        patch.syspath_prepend(str(code))
        patch.setenv("RAG_PLUGINS", "diary_plugin:register")
        patch.setenv("DIARY", str(folder))
        patch.setenv("DIARY_WAIT_S", "0.5")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield Diary(folder)


@pytest.fixture(scope="module")
def cluster(diary: Diary) -> Iterator[Any]:
    """A head and one more node, each with processes of its own."""
    with two_nodes(CPUS) as found:
        yield found


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with 400 documents, of which 40 repeat another's text, and one more."""
    folder = tmp_path / "docs"
    folder.mkdir()
    lines = [
        {"_id": f"d{i:03d}", "text": f"Paragraph {i % 360} speaks of ferry {i % 360}."} for i in range(400)
    ]
    (folder / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "more.md").write_text("# Ports\n\nShips sail.\n")
    return folder


@pytest.fixture
def cluster_of_one(diary: Diary) -> Iterator[Any]:
    """A head that embeds nothing, and one node; not with ``cluster`` in one module."""
    with two_nodes(0) as found:
        yield found
