"""Draw a preset's weights at random: the same numbers on every run, in memory and in a file.

Each tensor has a generator of its own, keyed by the seed and its name, and its numbers are those
of bfloat16 whatever dtype they are held in. Two devices draw different numbers.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from lab.bench.models.shapes import Preset
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import NormedConvTranspose1d
from synth.engine.model.config import SpecialIds
from synth.engine.model.dual_ar import DualAR

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Half = TypeVar("Half", CodecEncoder, CodecDecoder)
STANDARD_DEVIATION = 0.02
_BRANCH_END = re.compile(r".*\.block\.\d+\.block\.3\.conv\.weight")
_LAST_CONV = re.compile(r"decoder\.model\.(\d+)\.conv\.weight")


def special_ids(preset: Preset) -> SpecialIds:
    """Return the ids that the preset's tokenizer gives to the special tokens."""
    begin = preset.semantic_begin
    last = begin + preset.config.audio_decoder_config.vocab_size - 1
    return SpecialIds(preset.special_tokens["<|im_end|>"], begin, last)


def lm_weights(
    preset: Preset, *, device: torch.device, dtype: torch.dtype, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight of both transformers by its path in `DualAR`; norms are ones.

    The end token's row is zero. Its logit is then 0 in every frame, with about half of the
    semantic tokens above it, so it is never among the candidates of a draw and speech goes on to
    its frame limit.
    """
    special = special_ids(preset)
    with torch.device("meta"):
        model = DualAR(preset.config, special)
    for path, parameter in model.named_parameters():
        if parameter.dim() == 1:
            yield path, torch.ones(parameter.shape, device=device, dtype=dtype)
            continue
        weight = _normal(path, parameter.shape, STANDARD_DEVIATION, device, seed).to(dtype)
        if path == "slow.embeddings.weight":
            weight[special.im_end] = 0
        yield path, weight


def assign_weights(model: DualAR, weights: Mapping[str, Tensor]) -> None:
    """Put tensors in the place of a model's meta parameters; every path must be there."""
    for path in [path for path, _ in model.named_parameters()]:
        owner, _, attribute = path.rpartition(".")
        parameter = nn.Parameter(weights[path], requires_grad=False)
        setattr(model.get_submodule(owner), attribute, parameter)


def codec_half(
    half_type: type[Half], preset: Preset, *, device: torch.device, dtype: torch.dtype, seed: int
) -> Half:
    """Return a codec half whose activations stay finite and whose audio keeps below full scale."""
    with torch.device("meta"):
        half = half_type(preset.codec)
    modules = dict(half.named_modules())
    weights: dict[str, Tensor] = {}
    for path, parameter in half.named_parameters():
        owner = modules[path.rpartition(".")[0]]
        deviation = _codec_deviation(path, parameter, owner)
        if deviation:
            weight = _normal(f"codec.{path}", parameter.shape, deviation, device, seed)
        else:
            weight = torch.full(parameter.shape, _codec_constant(path), device=device)
        weights[path] = weight.to(dtype)
    half.load_state_dict(weights, strict=True, assign=True)
    half.requires_grad_(False)
    return half.eval()


def _codec_deviation(path: str, parameter: Tensor, owner: nn.Module) -> float:
    """Return a weight's standard deviation, 0 for one that is constant."""
    if parameter.dim() == 1 or path.endswith("alpha"):
        return 0.0
    if path.endswith("codebook.weight"):
        return 1.0
    if isinstance(owner, NormedConvTranspose1d):
        # Of a kernel twice the stride each output sees two taps, of one as long as it, one.
        taps = max(parameter.shape[2] // owner.stride[0], 1)
        return 1 / math.sqrt(parameter.shape[0] * taps)
    deviation = 1 / math.sqrt(parameter[0].numel())
    if _BRANCH_END.fullmatch(path):
        return 0.3 * deviation  # twelve units that each double the variance would saturate
    return 0.1 * deviation if _LAST_CONV.fullmatch(path) and parameter.shape[0] == 1 else deviation


def _codec_constant(path: str) -> float:
    """Return what a bias, a norm or a scale is filled with."""
    if path.endswith("bias"):
        return 0.0
    return 0.3 if path.endswith("gamma") else 1.0


def _normal(
    name: str, shape: torch.Size, deviation: float, device: torch.device, seed: int
) -> Tensor:
    """Return float32 normal numbers rounded to bfloat16, drawn on the device."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "big"))
    drawn = torch.empty(shape, device=device).normal_(0, deviation, generator=generator)
    return drawn.to(torch.bfloat16).float()


_NUM_BYTES = 256
# Bytes that the library spells as the letters of Latin-1 they are; the others get letters behind.
_PRINTED = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))


@dataclass(frozen=True, slots=True)
class Encoded:
    """Hold a text's ids."""

    ids: list[int]


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """Hold the spelling of a special token."""

    content: str
    special: bool = True


class ByteTokenizer:
    """Know a preset's vocabulary, with the methods of `tokenizers.Tokenizer`."""

    def __init__(self, preset: Preset) -> None:
        self._special = dict(preset.special_tokens)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, self._special))})")
        letters = _letters()
        self._bytes = sorted(range(_NUM_BYTES), key=letters.__getitem__)  # by id
        self._ids = {byte: token_id for token_id, byte in enumerate(self._bytes)}
        self._vocabulary = {letters[byte]: token_id for byte, token_id in self._ids.items()}

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoded:
        """Return a text's ids, special tokens by their spelling; none is added."""
        ids: list[int] = []
        for index, piece in enumerate(self._pattern.split(text)):
            is_special = index % 2  # what the pattern matched stands between the others
            ids += (
                [self._special[piece]]
                if is_special
                else [self._ids[byte] for byte in piece.encode("utf-8")]
            )
        return Encoded(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of ids; bytes that are no text become the replacement character."""
        spelled = {token_id: token for token, token_id in self._special.items()}
        special = {} if skip_special_tokens else spelled
        parts = [
            bytes([self._bytes[i]]) if i < _NUM_BYTES else special.get(i, "").encode() for i in ids
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]:
        """Return every token's id."""
        return self._vocabulary | (self._special if with_added_tokens else {})

    def get_added_tokens_decoder(self) -> Mapping[int, SpecialToken]:
        """Return the special tokens by id."""
        return {token_id: SpecialToken(token) for token, token_id in self._special.items()}

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, None where there is no such token."""
        return self._special.get(token, self._vocabulary.get(token))


def make_tokenizer(preset: Preset) -> Tokenizer:
    """Return the library's tokenizer with the special tokens at their published places.

    No letters are merged, so a text takes about four times the positions it takes with the
    published vocabulary.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)} | preset.special_tokens
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in preset.special_tokens]
    )
    return tokenizer


def _letters() -> dict[int, str]:
    """Return the letter by which the library's byte-level vocabulary spells each byte."""
    printed = {byte: chr(byte) for part in _PRINTED for byte in part}
    others = [byte for byte in range(_NUM_BYTES) if byte not in printed]
    return printed | {byte: chr(_NUM_BYTES + place) for place, byte in enumerate(others)}
