"""Read the codec's sizes off the shapes of its tensors, and the rest from `codec_config.json`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synth.engine.errors import CheckpointError

PRECISIONS = ("float32", "tf32", "bfloat16")
KERNEL_CHOICES = ("auto", "off")
HEAD_DIM = 64  # of every codec transformer; heads are not stored, they follow from it
SAMPLE_RATE = 44100
ENCODER_WINDOW = 512  # encoder frames, four per code frame
MODULE_WINDOW = 128  # code frames, before and after the quantizers

Shapes = Mapping[str, tuple[int, ...]]
FILE_NAME = "codec_config.json"
_OWN, _ANY = object(), object()  # a whole number that no tensor shows; what does not matter
_UNFIT = "it does not fit this model. Download the checkpoint again."


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Hold one windowed transformer's sizes; `window` is the keys a query sees, itself included."""

    dim: int
    num_layers: int
    num_heads: int
    ffn_dim: int
    window: int


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Hold every size of the codec; `sample_rate` in Hz, strides and rates per block."""

    sample_rate: int
    latent_dim: int
    encoder_dim: int
    encoder_strides: tuple[int, ...]
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    downsample_factors: tuple[int, ...]
    upsample_factors: tuple[int, ...]
    codebook_dim: int
    semantic_codebook_size: int
    residual_codebook_size: int
    num_residual_codebooks: int
    encoder_transformer: TransformerConfig
    pre_module: TransformerConfig
    post_module: TransformerConfig

    @property
    def num_codebooks(self) -> int:
        """Return K, the rows of a code matrix: one semantic codebook and the residual ones."""
        return 1 + self.num_residual_codebooks

    @property
    def hop_length(self) -> int:
        """Return the samples of one code frame."""
        return math.prod(self.encoder_strides) * math.prod(self.downsample_factors)


def config_from_shapes(shapes: Shapes) -> CodecConfig:
    """Derive every size from the tensors' shapes, with the default windows and sample rate.

    Where several tensors show one size the majority decides, so that the strict check afterwards
    names the tensor that is wrong and not those that fit.

    Raises:
        CheckpointError: a tensor that a size is read from is missing, or both halves of the codec
            do not work at the same number of samples a frame.
    """
    sizes = _ShapeReader(shapes)
    down, up = "encoder.block.{}.block.4", "decoder.model.{}.block.1"
    encoder_blocks = sizes.count(f"{down}.conv.bias", "encoder.block.{}.block.3.alpha", first=1)
    decoder_blocks = sizes.count(f"{up}.conv.bias", "decoder.model.{}.block.0.alpha", first=1)
    semantic = ["quantizer.semantic_quantizer.quantizers.0.codebook.weight"]
    residual = sizes.codebooks("quantizer.quantizer.quantizers")
    last = encoder_blocks.stop - 1
    config = CodecConfig(
        sample_rate=SAMPLE_RATE,
        latent_dim=sizes.channels(f"encoder.block.{last + 2}"),
        encoder_dim=sizes.channels("encoder.block.0"),
        encoder_strides=tuple(sizes.stride(down.format(block)) for block in encoder_blocks),
        decoder_dim=sizes.channels("decoder.model.0"),
        decoder_rates=tuple(sizes.stride(up.format(block)) for block in decoder_blocks),
        downsample_factors=sizes.resamplers("quantizer.downsample"),
        upsample_factors=sizes.resamplers("quantizer.upsample"),
        codebook_dim=sizes.most(semantic + residual, axis=1),
        semantic_codebook_size=sizes.most(semantic, axis=0),
        residual_codebook_size=sizes.most(residual, axis=0),
        num_residual_codebooks=len(residual),
        encoder_transformer=sizes.transformer(f"encoder.block.{last}.block.5", ENCODER_WINDOW),
        pre_module=sizes.transformer("quantizer.pre_module", MODULE_WINDOW),
        post_module=sizes.transformer("quantizer.post_module", MODULE_WINDOW),
    )
    decoded = math.prod(config.decoder_rates) * math.prod(config.upsample_factors)
    if config.hop_length != decoded:
        raise CheckpointError(
            f"The codec's encoder takes {config.hop_length} samples a frame "
            f"(strides {config.encoder_strides}, downsample {config.downsample_factors}) and its "
            f"decoder gives {decoded} (rates {config.decoder_rates}, upsample "
            f"{config.upsample_factors}): one kernel in the codec file has a wrong shape."
        )
    return config


class _ShapeReader:
    """Read sizes off a table of shapes, naming what is missing."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def most(self, names: Sequence[str], *, axis: int) -> int:
        """Return the size that most of these tensors have along `axis`."""
        shapes = [self._shapes[name] for name in names if name in self._shapes]
        votes = Counter(shape[axis] for shape in shapes if len(shape) > axis)
        if not votes:
            raise CheckpointError(f"The codec file has no valid {names[0]}; {_UNFIT}")
        size = votes.most_common(1)[0][0]
        if size < 1:
            raise CheckpointError(f"{names[0]} is empty in the codec file.")
        return size

    def count(self, *patterns: str, first: int = 0) -> range:
        """Return the indices from `first` on at which any of these name patterns occurs.

        Two patterns each, so that one missing tensor does not end the range before the strict
        check can name it.
        """
        end = first
        while any(pattern.format(end) in self._shapes for pattern in patterns):
            end += 1
        if end == first:
            raise CheckpointError(
                f"The codec file has no tensor {patterns[0].format(first)}; {_UNFIT}"
            )
        return range(first, end)

    def channels(self, conv: str) -> int:
        """Return the output channels of a weight-normed convolution."""
        weight = f"{conv}.conv.parametrizations.weight"
        return self.most(
            [f"{conv}.conv.bias", f"{weight}.original0", f"{weight}.original1"], axis=0
        )

    def stride(self, conv: str) -> int:
        """Return the stride of a resampling convolution, whose kernel is twice as long."""
        name = f"{conv}.conv.parametrizations.weight.original1"
        kernel = self.most([name], axis=2)
        if kernel % 2:
            raise CheckpointError(f"{name} has a kernel of {kernel}, which is not twice a stride.")
        return kernel // 2

    def resamplers(self, prefix: str) -> tuple[int, ...]:
        """Return the factors of a stack of resamplers, whose kernels are as long as the stride."""
        weight, bias = f"{prefix}.{{}}.0.conv.weight", f"{prefix}.{{}}.0.conv.bias"
        return tuple(self.most([weight.format(i)], axis=2) for i in self.count(weight, bias))

    def codebooks(self, prefix: str) -> list[str]:
        name = f"{prefix}.{{}}.codebook.weight"
        return [name.format(i) for i in self.count(name, f"{prefix}.{{}}.in_proj.bias")]

    def transformer(self, prefix: str, window: int) -> TransformerConfig:
        norms = [
            f"{prefix}.layers.{{}}.attention_norm.weight",
            f"{prefix}.layers.{{}}.ffn_norm.weight",
        ]
        layers = [f"{prefix}.layers.{i}" for i in self.count(*norms)]
        rows = self.most([f"{layer}.attention.wqkv.weight" for layer in layers], axis=0)
        if rows % (3 * HEAD_DIM):
            raise CheckpointError(
                f"{prefix}: wqkv has {rows} rows, which is not three times heads of {HEAD_DIM}."
            )
        return TransformerConfig(
            dim=self.most([f"{layer}.ffn_norm.weight" for layer in layers], axis=0),
            num_layers=len(layers),
            num_heads=rows // (3 * HEAD_DIM),
            ffn_dim=self.most([f"{layer}.feed_forward.w1.weight" for layer in layers], axis=0),
            window=window,
        )


def apply_config_file(config: CodecConfig, checkpoint_dir: Path) -> CodecConfig:
    """Return `config` with the sample rate and windows of `codec_config.json`, if it exists.

    Every other number of the file must agree with the sizes read from the tensors.

    Raises:
        CheckpointError: the file is not JSON, holds a field that is not known, or contradicts the
            tensors; the text names the field.
    """
    path = checkpoint_dir / FILE_NAME
    if not path.is_file():
        return config
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    blocks = len(config.encoder_strides)
    expected = {
        "sample_rate": _OWN,
        # The reference builds the transformers that this list names for the decoder and drops
        # them again, so what it says has no tensors to agree with.
        "decoder_transformer_layers": _ANY,
        "encoder_dim": config.encoder_dim,
        "encoder_rates": list(config.encoder_strides),
        "decoder_dim": config.decoder_dim,
        "decoder_rates": list(config.decoder_rates),
        "encoder_transformer_layers": [0] * (blocks - 1) + [config.encoder_transformer.num_layers],
        "quantizer": {
            "input_dim": config.latent_dim,
            "n_codebooks": config.num_residual_codebooks,
            "codebook_size": config.residual_codebook_size,
            "codebook_dim": config.codebook_dim,
            "semantic_codebook_size": config.semantic_codebook_size,
            "downsample_factor": list(config.downsample_factors),
            "pre_module": _module_fields(config.pre_module),
            "post_module": _module_fields(config.post_module),
        },
    }
    _check_fields(path, given, expected, "")
    quantizer = given.get("quantizer", {})

    def module(name: str, sizes: TransformerConfig) -> TransformerConfig:
        window = quantizer.get(name, {}).get("window_size", sizes.window)
        return dataclasses.replace(sizes, window=window)

    return dataclasses.replace(
        config,
        sample_rate=given.get("sample_rate", config.sample_rate),
        pre_module=module("pre_module", config.pre_module),
        post_module=module("post_module", config.post_module),
    )


def _module_fields(sizes: TransformerConfig) -> dict[str, Any]:
    return {
        "input_dim": sizes.dim,
        "window_size": _OWN,
        "config": {
            "n_layer": sizes.num_layers,
            "n_head": sizes.num_heads,
            "dim": sizes.dim,
            "intermediate_size": sizes.ffn_dim,
            "head_dim": HEAD_DIM,
        },
    }


def _check_fields(path: Path, given: Any, expected: dict[str, Any], at: str) -> None:
    """Compare each field that is given with the value that the tensors gave."""
    if not isinstance(given, dict):
        raise CheckpointError(f"{path}: {at.rstrip('.') or 'the file'} is not an object.")
    for field, value in given.items():
        wanted = expected.get(field)
        if wanted is None:
            raise CheckpointError(
                f"{path}: {at}{field} is not a known field; correct the file or remove it."
            )
        if isinstance(wanted, dict):
            _check_fields(path, value, wanted, f"{at}{field}.")
        elif wanted is _OWN:
            if type(value) is not int or value < 1:
                raise CheckpointError(
                    f"{path}: {at}{field} is {value!r}, not a whole number above 0."
                )
        elif wanted is not _ANY and value != wanted:
            raise CheckpointError(
                f"{path}: {at}{field} is {value!r}, but the codec's tensors have {wanted!r}; "
                "correct the file or remove it."
            )
