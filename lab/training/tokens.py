"""Make the demo checkpoint's tokenizer: one token a byte, and whole ones for the prompt's parts."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_SPECIAL = (
    "<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>", "<|phoneme_start|>",
    "<|phoneme_end|>", "<|text|>", "<|voice|>", "<|interleave|>", "<|audio_start|>",
    "<|audio_end|>", "<|audio_pad|>",
)  # fmt: skip
_WHOLE = (
    "convert the provided text to speech reference to the following:\n\nText:\n",
    "convert the provided text to speech",
    "\n\nSpeech:\n",
    "system\n",
    "user\n",
    "assistant\n",
    "<|speaker:0|>",
)
END, PAD = "<|im_end|>", "<|pad|>"


def make_tokenizer(num_semantic: int) -> Tokenizer:
    """Return the tokenizer of a model with `num_semantic` semantic codes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _WHOLE])
    tokenizer.add_special_tokens(
        [AddedToken(f"<|semantic:{code}|>", special=True) for code in range(num_semantic)]
    )
    return tokenizer


def write_tokenizer(folder: Path, num_semantic: int) -> None:
    """Write `tokenizer.json` into a checkpoint folder."""
    make_tokenizer(num_semantic).save(str(folder / "tokenizer.json"))
