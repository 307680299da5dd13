"""What a sentence-transformers or Hugging Face folder says about its model: nothing here is guessed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_core.errors import InvalidArgumentError, ProviderError, ProviderUnavailableError

__all__ = ["POOLINGS", "ModelFolder"]

POOLINGS = ("mean", "cls")
#: Names a prompt for documents goes by, the first one present counts.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
MODULES = ("Transformer", "Pooling", "Normalize")
#: Positions that these model types keep for padding and never give to a token.
RESERVED = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "mpnet": 2}
#: How a model card shows its model being loaded.
EXAMPLE = re.compile(r"""SentenceTransformer\(\s*["']([\w.-]+/[\w.-]+)["']""")
#: ``model_max_length`` of a tokenizer that has no limit is a number like 1e30.
NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The files of a model in ``path``; ``owner`` begins the messages of errors.

    Each question raises ProviderUnavailableError when the file that answers it is missing, naming that file
    and the option that answers instead, and ProviderError when a file is not what it should be.
    """

    owner: str
    path: Path

    def require(self, name: str, instead: str = "") -> Path:
        """The file ``name``."""
        file = self.path / name
        if not file.is_file():
            raise ProviderUnavailableError(self.owner, f"{file} is missing", instead)
        return file

    def read(self, name: str) -> Any:
        """The JSON in ``name``; None where there is no such file."""
        file = self.path / name
        if not file.is_file():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ProviderError(f"{self.owner}: {file} is not JSON ({error})") from error

    def _object(self, name: str) -> dict[str, Any]:
        found = self.read(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise ProviderError(
                f"{self.owner}: {self.path / name} holds a {type(found).__name__}; expected {{…}}"
            )
        return found

    def model_name(self) -> str:
        """The model's name: of the hub's cache or the model card's own example, else the folder's."""
        for part in self.path.parts:
            if part.startswith("models--"):
                return part.removeprefix("models--").replace("--", "/")
        card = self.path / "README.md"
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        named = EXAMPLE.search(text)
        return named[1] if named else self.path.resolve().name

    def is_plain(self) -> bool:
        """Whether the files ask for one pooling of :data:`POOLINGS` over the transformer and no more."""
        try:
            self.pooling()
        except ProviderUnavailableError:
            if not (self.path / "modules.json").is_file() or not self._pooling_file().is_file():
                raise
            return False
        return True

    def counts_prompt(self) -> bool:
        """Whether a prompt's tokens are pooled with those of the text, as they are unless a file says no."""
        file = self._pooling_file()
        return not file.is_file() or self._object(str(file.relative_to(self.path))).get(
            "include_prompt", True
        )

    def _pooling_file(self) -> Path:
        folder = "1_Pooling"
        for module in self.read("modules.json") or []:
            if str(module.get("type", "")).endswith("Pooling"):
                folder = str(module.get("path") or folder)
        return self.path / folder / "config.json"

    def pooling(self) -> str:
        """``mean`` or ``cls``, from the pooling module's config."""
        for module in self.read("modules.json") or []:
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind not in MODULES:
                raise ProviderUnavailableError(
                    self.owner,
                    f"{self.path / 'modules.json'} has a module {kind!r}; accepted: {', '.join(MODULES)}",
                )
        name = str(self._pooling_file().relative_to(self.path))
        self.require(name, f"or say pooling={' or pooling='.join(POOLINGS)}")
        config = self._object(name)
        modes = [
            key.removeprefix("pooling_mode_")
            for key, on in config.items()
            if key[:13] == "pooling_mode_" and on is True
        ]
        modes = [{"mean_tokens": "mean", "cls_token": "cls"}.get(mode, mode) for mode in modes]
        if "pooling_mode" in config:
            modes = [str(config["pooling_mode"])]
        if len(modes) != 1 or modes[0] not in POOLINGS:
            raise ProviderUnavailableError(
                self.owner,
                f"{self.path / name} asks for pooling {modes}; accepted: one of {', '.join(POOLINGS)}",
            )
        return modes[0]

    def window(self) -> int:
        """Longest input in tokens: of the sentence model, the tokenizer, or the transformer's positions."""
        config = self._object("config.json")
        reserved = RESERVED.get(str(config.get("model_type", "")), 0)
        positions = config.get("max_position_embeddings")
        for name, value in (
            ("sentence_bert_config.json", self._object("sentence_bert_config.json").get("max_seq_length")),
            ("tokenizer_config.json", self._object("tokenizer_config.json").get("model_max_length")),
            ("config.json", positions - reserved if isinstance(positions, int) else None),
        ):
            if value is None or (isinstance(value, (int, float)) and value >= NO_LIMIT):
                continue
            if not isinstance(value, int) or value < 3:
                raise ProviderError(f"{self.owner}: {self.path / name} limits texts to {value!r} tokens")
            return value
        raise ProviderUnavailableError(
            self.owner,
            f"no file in {self.path} says how many tokens a text may have (looked for max_seq_length in "
            "sentence_bert_config.json, model_max_length in tokenizer_config.json, max_position_embeddings "
            "in config.json)",
            "or say max_tokens=",
        )

    def prompts(self) -> tuple[str, str]:
        """What goes before a query and before a document; empty where the file names none."""
        name = "config_sentence_transformers.json"
        self.require(name, "or say query_prompt= and document_prompt= (empty for none)")
        config = self._object(name)
        prompts = config.get("prompts") or {}
        default = config.get("default_prompt_name")
        if not isinstance(prompts, dict) or (default is not None and default not in prompts):
            raise InvalidArgumentError(f"{self.owner}: {self.path / name} has no prompt {default!r}")
        otherwise = prompts.get(default, "")
        document = next((prompts[key] for key in DOCUMENT_PROMPTS if key in prompts), otherwise)
        return str(prompts.get("query", otherwise)), str(document)
