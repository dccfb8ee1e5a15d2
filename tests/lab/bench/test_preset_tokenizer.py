"""A preset's own tokenizer: the ids of the library's, without the library."""

from __future__ import annotations

import sys

import pytest

from lab.bench.preset_weights import ByteTokenizer, make_tokenizer
from lab.bench.presets import preset_models
from lab.golden.case import GoldenFolder
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.presets import preset
from synth.engine.prompt import Tokenizer

TEXTS = (
    "",
    "A plain sentence, with a comma.",
    "ÄÖÜ ß é — “quoted”, 漢字 und 😀\n\ttabs\x00\x7f\xad",
    "<|im_start|>user\nhi<|im_end|>\n<|voice|>",
    "<|semantic:1|><|semantic:10|><|semantic:255|> <|semantic:9999|> <|im_end|",
    "<<|im_end|>><|im_<|im_end|>end|>",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_ids_that_the_library_gives_it(text: str) -> None:
    own, library = ByteTokenizer(preset("tiny")), make_tokenizer(preset("tiny"))

    ids = own.encode(text, add_special_tokens=False).ids

    assert ids == library.encode(text, add_special_tokens=False).ids
    assert own.decode(ids, skip_special_tokens=False) == text
    assert own.decode(ids, skip_special_tokens=True) == library.decode(ids)


@pytest.mark.parametrize("name", ["tiny", "mid"])
def test_the_vocabulary_is_that_of_the_file(name: str) -> None:
    own, library = ByteTokenizer(preset(name)), make_tokenizer(preset(name))

    assert own.get_vocab(with_added_tokens=True) == library.get_vocab(with_added_tokens=True)
    assert {
        token_id: token.content for token_id, token in own.get_added_tokens_decoder().items()
    } == {token_id: token.content for token_id, token in library.get_added_tokens_decoder().items()}
    assert own.token_to_id("<|im_end|>") == library.token_to_id("<|im_end|>")
    assert own.token_to_id("no token") is None
    assert Tokenizer(own).special == Tokenizer(library).special


def test_half_a_surrogate_pair_is_an_invalid_request() -> None:
    with pytest.raises(InvalidSpecError, match="surrogate"):
        Tokenizer(ByteTokenizer(preset("tiny"))).encode_user_text("a\ud800b")


def test_a_preset_needs_no_library_and_a_file_says_what_is_missing(
    golden: GoldenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert preset_models("tiny", device="cpu").tokenizer.encode("ab") != []
    with pytest.raises(CheckpointError, match="package tokenizers, which cannot be imported"):
        Tokenizer.from_checkpoint(golden.checkpoint)
