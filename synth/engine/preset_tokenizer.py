"""Make a preset's tokenizer: a token for every byte, and the prompt's special tokens."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from synth.engine.preset_shapes import Preset


def make_tokenizer(preset: Preset) -> Tokenizer:
    """Return the tokenizer with the special tokens at the published places of the vocabulary.

    No letters are merged, so a text takes about four times the positions it takes with the
    published vocabulary.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)} | preset.special_tokens
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in preset.special_tokens]
    )
    return tokenizer
