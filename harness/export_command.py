"""`bench export`: which model is meant, who exports it, and what is said about the result."""

from __future__ import annotations

from pathlib import Path

from rag_core.errors import ProviderUnavailableError, UnknownNameError
from rag_core.exporting import Exported, ExportedFile
from rag_core.factory import SpecString
from rag_core.registry import EMBEDDERS, RERANKERS, Spec, load_attribute, load_plugins

__all__ = ["export_lines", "model_of", "result_lines"]


def export_lines(model: str, out: Path, dtypes: str, opset: int) -> list[str]:
    """Export ``model`` to ``out``; what to print.

    Args:
        model: a folder, ``owner/name`` or a spec string whose model or ``path`` is meant.
        out: the folder to make.
        dtypes: separated by commas.
        opset: version of ONNX's operators.

    Raises:
        RagCoreError: as the exporter says.
    """
    load_plugins()
    exporter = next((spec for spec in EMBEDDERS if spec.export), None)
    if exporter is None:
        raise ProviderUnavailableError("export", "no installed plug-in exports models")
    name, path = model_of(model)
    wanted = [part.strip() for part in dtypes.split(",") if part.strip()]
    spec: Spec = exporter
    return result_lines(load_attribute(spec.export)(spec, name, out, wanted, opset, path))


def model_of(text: str) -> tuple[str, str]:
    """The model's name or folder, and the folder that a spec string names with ``path=``.

    Raises:
        UnknownNameError: neither a folder, nor ``owner/name``, nor a registered name.
        SpecStringError: a spec string that does not parse.
    """
    if Path(text).expanduser().is_dir():
        return text, ""
    parsed = SpecString.parse(text)
    known = [spec for registry in (EMBEDDERS, RERANKERS) for spec in registry if spec.name == parsed.name]
    if known:
        return parsed.model or known[0].model, parsed.options.get("path", "")
    if "/" in text:
        return text, ""
    raise UnknownNameError(f"no model {text!r}; accepted: a folder, OWNER/NAME, or a spec string")


def result_lines(done: Exported) -> list[str]:
    """A line a file, marked where it disagrees; the notes; the next command."""
    lines = [f"{done.folder}:"]
    lines += [_file_line(file) for file in done.files]
    lines += [f"note: {note}" for note in done.notes]
    return [*lines, f"next: {done.command}"]


def _file_line(file: ExportedFile) -> str:
    values = ", ".join(f"{name} {value:.6f}" for name, value in file.agreement.items())
    mark = "" if file.agrees else f"  DISAGREES with the original (accepted: {file.accepted})"
    return f"  {file.dtype:<5} {file.name:<16} {file.size_bytes / 1e6:>8.1f} MB  {values}{mark}"
