"""Draw a preset's weights at random: the same numbers on every run, in memory and in a file.

Each tensor has a generator of its own, keyed by the seed and its name, and its numbers are those
of bfloat16 whatever dtype they are held in. Two devices draw different numbers.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from synth.engine.codec import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import NormedConvTranspose1d
from synth.engine.model.dual_ar import DualAR
from synth.engine.presets.shapes import Preset
from synth.engine.tokenizer import SpecialIds

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
