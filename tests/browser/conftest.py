"""A headless Chromium of the machine, and pages made from a result with hostile texts."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.render import html

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: Names of the browser, the first that is there is taken.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ROOT = Path(__file__).resolve().parents[1]


def module_of(path: Path) -> Any:
    """A file of the harness's tests as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"browser_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Tab:
    """A page that is open, and what it said and asked for."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")  # while it is open its event loop is in the way of tests that use asyncio
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser; looked for: {', '.join(NAMES)}")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, headless=True, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of six systems and two that failed; every text on it tries to break it."""
    folder = tmp_path_factory.mktemp("page")
    made = module_of(ROOT / "harness" / "conftest.py").make_document()
    beside = module_of(ROOT / "harness" / "report_folder.py")
    beside.make_hostile(made, folder)
    for cell in made.cells[:3]:
        cell.attribution = {
            "top": 10,
            "pool": 50,
            "relevant": 80,
            "lifted": 0,
            "fates": {"found": 50, "low": 10, "fusion": 8, "no_pool": 12},
        }
    (path,) = html.write(made, folder)
    return path


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Callable[..., Tab]]:
    """Opens the page in a tab of its own; in the end nothing was said and nothing else asked for."""
    tabs: list[Tab] = []

    def opened(width: int = 1280, scheme: str = "light", height: int = 900) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        tab = Tab(context.new_page())
        tabs.append(tab)
        tab.page.on("console", lambda message: tab.messages.append(message.text))
        tab.page.on("pageerror", lambda error: tab.messages.append(str(error)))
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.goto(report.as_uri())
        tab.page.wait_for_selector("#plot svg")
        return tab

    yield opened
    for tab in tabs:
        assert tab.messages == []
        assert [url for url in tab.requests if not url.startswith("data:")] == [report.as_uri()]
        tab.page.context.close()
