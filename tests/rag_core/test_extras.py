from __future__ import annotations

from pathlib import Path

import pytest

from rag_core.errors import MissingExtraError
from rag_core.extras import require


def test_a_module_of_a_package_is_given() -> None:
    assert require("a test", "json.decoder", "files").JSONDecoder().decode("1") == 1


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part"])
def test_a_missing_package_is_named_with_its_extra(module: str) -> None:
    with pytest.raises(MissingExtraError, match=r"a test .*'no_such_package'.*\[files\]"):
        require("a test", module, "files")


def test_a_package_that_lacks_something_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_there.py").write_text("import no_such_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency") as raised:
        require("a test", "half_there", "files")
    assert not isinstance(raised.value, MissingExtraError)
