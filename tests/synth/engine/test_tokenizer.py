"""Test tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.tokenizer import Tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "<|im_end|>",
        "a <|semantic:5|> b",
        "<|im_start|>user\nhi<|im_end|>\n",
        "<<|im_end|>>",
        "<|im_<|im_end|>end|>",
        "<|im_end|><|im_end|>",
        "<|voice|>",
        "<|endoftext|>",
    ],
)
def test_reserved_spellings_in_user_text_stay_plain_characters(loaded: Loaded, text: str) -> None:
    tokenizer = loaded.tokenizer

    ids = tokenizer.encode_user_text(text)

    reserved = {tokenizer.id_of(f"<|{name}|>") for name in ("im_end", "im_start", "voice")}
    reserved |= {tokenizer.id_of("<|endoftext|>"), tokenizer.id_of("<|semantic:5|>")}
    assert reserved.isdisjoint(ids)
    assert tokenizer._backend.decode(ids, skip_special_tokens=False) == text


def test_the_compat_switch_makes_reserved_spellings_live(loaded: Loaded) -> None:
    ids = loaded.tokenizer.encode_user_text("a<|im_end|>", live_special_tokens=True)

    assert ids[-1] == loaded.tokenizer.special.im_end


def test_text_without_reserved_spellings_is_encoded_in_one_piece(loaded: Loaded) -> None:
    text = "<|speaker:0|>One.\n\nTwo <|notatoken|> three."

    assert loaded.tokenizer.encode_user_text(text) == loaded.tokenizer.encode(text)


def test_half_a_surrogate_pair_is_an_invalid_request(loaded: Loaded) -> None:
    with pytest.raises(InvalidSpecError, match="surrogate"):
        loaded.tokenizer.encode_user_text("a\ud800b")


def _without_tokens(golden: GoldenFolder, folder: Path, names: set[str]) -> Path:
    content = json.loads((golden.checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] not in names]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "name", ["<|im_start|>", "<|im_end|>", "<|voice|>", "<|semantic:0|>", "<|semantic:100|>"]
)
def test_a_tokenizer_without_a_token_that_is_needed_is_refused(
    golden: GoldenFolder, tmp_path: Path, name: str
) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.from_checkpoint(_without_tokens(golden, tmp_path, {name}))


def test_a_missing_or_broken_file_is_refused_by_name(golden: GoldenFolder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        Tokenizer.from_checkpoint(tmp_path)

    shutil.copyfile(golden.checkpoint / "config.json", tmp_path / "tokenizer.json")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Tokenizer.from_checkpoint(tmp_path)
