"""Build a codec half on a device, in the numbers and with the kernels that are asked for.

On a CPU compiled code can turn codes into samples: the same layers, all of them in a call.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from synth.engine.codec.codec_file import folded_weights, open_codec, stored_shapes
from synth.engine.codec.config import HEAD_DIM, KERNEL_CHOICES, PRECISIONS
from synth.engine.codec.fused import OPERANDS, FusedWaves, fuse_linears
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import (
    KERNELS,
    ROPE_ROWS,
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
    Normed,
    ResidualUnit,
    Snake,
)
from synth.engine.codec.stages import (
    NORM_EPS,
    DecoderBlock,
    DecodingQuantizer,
    RMSNorm,
    TransformerLayer,
    VectorQuantizer,
    WaveDecoder,
)
from synth.engine.device import trim_heap
from synth.engine.errors import InvalidSpecError
from synth.engine.kernels import why_unavailable
from synth.engine.native.build import NotCompiledError
from synth.engine.native.convolution import (
    Ahead,
    NativeCodebooks,
    NativeConvolution,
    NativeDepthwise,
    NativeNorm,
    NativeSnake,
    NativeTaps,
    NativeWindow,
    Then,
    convolve,
    convolve_arrays,
)
from synth.engine.native.library import native_library

logger = logging.getLogger(__name__)

_FLOAT_BYTES = 4
_Laid = tuple[NativeConvolution, nn.Module]  # a step, and what its state is kept under


class CompiledDecoder:
    """Run a decoder's layers, whose weights are laid out anew in their modules.

    What a row of a batch gives does not depend, in one bit, on the rows beside it, nor on the
    chunks that it comes in.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        """Lay out a decoder's weights; raise NotCompiledError, having changed nothing."""
        native_library()
        context = _lay_context(decoder.quantizer)
        latents = [*context, *_lay_upsample(decoder.quantizer)]
        laid = [*latents, *_lay_wave(decoder.decoder)]
        self._steps = [step for step, _ in laid]
        self._stages = {"post_module": len(context), "upsample": len(latents)}  # steps up to there
        offsets = decoder.layout.offsets
        self._offsets = [offsets.get(module) for _, module in laid]

    def each(self, codes: Sequence[Tensor]) -> list[Tensor]:
        """Map codes, integers [K, T] of any T, to samples [hop_length * T] each; in one call."""
        rows = [np.ascontiguousarray(each.cpu().numpy()[None], dtype=np.int64) for each in codes]
        rope = ROPE_ROWS.rows(0, max(row.shape[2] for row in rows), torch.device("cpu"))
        waves = convolve_arrays(self._steps, rows, rope=rope[None])
        return [torch.from_numpy(wave.reshape(-1)) for wave in waves]

    def on_the_way(self, codes: Tensor) -> dict[str, Tensor]:
        """Return what stages map codes [K, T] to, [1, latent_dim, T or more], for a comparison.

        They are `post_module`, its norm left out, which the next step does, and `upsample`.
        """
        rope = ROPE_ROWS.rows(0, codes.shape[1], torch.device("cpu"))
        rows = [codes.to(torch.int64)[None]]
        return {
            name: convolve(self._steps[:end], rows, rope=rope[None])[0]
            for name, end in self._stages.items()
        }

    def advance(self, codes: Tensor, rows: Tensor, frames: Tensor, rope: Tensor) -> Tensor:
        """Map codes that go on from a state to samples [B, N], and move the state's rows on.

        Arguments as for `FrameRunner.advance`, on a CPU.
        """
        assert rows.dtype is torch.float32 and rows.stride(1) == 1
        base = rows.data_ptr()
        places = [None if at is None else base + _FLOAT_BYTES * at for at in self._offsets]
        ahead = Ahead(places, rows.stride(0), frames)
        (wave,) = convolve(self._steps, [codes], ahead, rope=rope.contiguous())
        return wave.flatten(1)


def _lay_context(quantizer: DecodingQuantizer) -> list[_Laid]:
    """Lay out the codebooks and the transformer behind them, its last norm left out."""
    books = [*quantizer.semantic_quantizer.steps, *quantizer.quantizer.steps]
    tables = NativeCodebooks([book.codebook.weight for book in books])
    for book, table in zip(books, tables.tables, strict=True):
        book.codebook.weight = nn.Parameter(table, requires_grad=False)
    # The sum of the codebooks' projections is one of all rows that a frame's codes have.
    weight = torch.cat([book.out_proj.weight for book in books], dim=1)
    biases = [book.out_proj.bias for book in books if book.out_proj.bias is not None]
    taps = NativeTaps(weight, torch.stack(biases).sum(0))
    laid: list[_Laid] = [(NativeConvolution(taps, first=tables), books[0])]
    for layer in cast("Iterable[TransformerLayer]", quantizer.post_module.layers):
        laid += [*_lay_attention(layer), _lay_feed_forward(layer)]
    return laid


def _lay_attention(layer: TransformerLayer) -> list[_Laid]:
    attention, norm = layer.attention, _rms(layer.attention_norm)
    window = NativeWindow(attention.wo.in_features // HEAD_DIM, attention.window)
    inputs = _linear(attention.wqkv)
    qkv = NativeConvolution(inputs, first=window, norm=norm, then=Then.ROTATED)
    out = _linear(attention.wo, layer.attention_layer_scale.gamma)
    return [
        (qkv, attention.wqkv),
        (NativeConvolution(out, first=window, adds=2), attention),
    ]


def _lay_feed_forward(layer: TransformerLayer) -> _Laid:
    inner = layer.feed_forward
    both = NativeTaps(torch.cat([inner.w1.weight, inner.w3.weight]).unsqueeze(2))
    _hand_over(inner.w1, both)
    _hand_over(inner.w3, both)  # w1's lie beside them
    narrow = _linear(inner.w2, layer.ffn_layer_scale.gamma)
    norm = _rms(layer.ffn_norm)
    return NativeConvolution(both, norm=norm, then=Then.GATES, narrow=narrow, adds=1), inner


def _lay_upsample(quantizer: DecodingQuantizer) -> Iterator[_Laid]:
    norm: NativeNorm | None = _rms(quantizer.post_module.norm)
    for stage in quantizer.upsample:
        longer, block = cast("tuple[CausalConvTranspose1d, ConvNeXtBlock]", stage)
        yield _lay_transposed(longer, norm=norm)
        mixed = block.dwconv.conv
        assert mixed.bias is not None
        step = NativeConvolution(
            _linear(block.pwconv1),
            first=NativeDepthwise(mixed.weight, mixed.bias),
            norm=NativeNorm(block.norm.weight, block.norm.eps, bias=block.norm.bias),
            then=Then.GELUS,
            narrow=_linear(block.pwconv2, block.gamma),
            adds=1,
        )
        yield step, block.dwconv
        norm = None
    assert norm is None  # every codec lengthens its frames


def _lay_wave(decoder: WaveDecoder) -> Iterator[_Laid]:
    first, *blocks, snake, last, _ = decoder.model
    yield NativeConvolution(_taps(cast("CausalConv1d", first))), first
    for block in cast("list[DecoderBlock]", blocks):
        before, narrowing, *units = block.block
        own = NativeSnake(cast("Snake", before).alpha)
        yield _lay_transposed(cast("CausalConvTranspose1d", narrowing), first=own)
        for unit in cast("list[ResidualUnit]", units):
            first, wide, second, narrow = unit.layers
            step = NativeConvolution(
                _taps(wide),
                first=NativeSnake(first.alpha),
                then=Then.SNAKES,
                second=NativeSnake(second.alpha),
                narrow=_taps(narrow),
                adds=1,
            )
            yield step, wide
    own = NativeSnake(cast("Snake", snake).alpha)
    yield NativeConvolution(_taps(cast("CausalConv1d", last)), first=own, then=Then.TANGENTS), last


def _lay_transposed(conv: CausalConvTranspose1d, **before: Any) -> _Laid:
    """Lay out a transposed convolution as one whose outputs are each stride's columns in turn."""
    inner, stride = conv.conv, conv.stride
    assert inner.bias is not None
    wide = _columns_of_strides(inner.weight, stride)
    # The first form is let go before the last is made: this is the largest weight of all.
    inner.weight = nn.Parameter(wide, requires_grad=False)
    laid = NativeTaps(wide, inner.bias.repeat_interleave(stride))
    _hand_over(inner, laid)
    return NativeConvolution(laid, stride=stride, **before), conv


def compile_decoder(decoder: CodecDecoder) -> None:
    """Let compiled code run a decoder where there is some for it: float32 on a CPU.

    Its weights are then in that code's layout, and nothing else can run them.
    """
    if decoder.device.type != "cpu" or decoder.dtype is not torch.float32:
        return
    try:
        decoder.compiled = CompiledDecoder(decoder)
    except NotCompiledError as error:
        logger.info("decoding audio with PyTorch, at half the speed: %s", error)


def _columns_of_strides(weight: Tensor, stride: int) -> Tensor:
    """Return a transposed kernel [in, out, taps * stride] as one of [out * stride, in, taps]."""
    channels, outputs, kernel = weight.shape
    assert kernel % stride == 0
    taps = weight.view(channels, outputs, kernel // stride, stride).permute(1, 3, 0, 2)
    wide = weight.new_empty(taps.shape)
    for tap, into in enumerate(wide.unbind(3)):
        # The first columns of a kernel meet the newest input, which is the last tap.
        into.copy_(taps[..., -1 - tap])
    return wide.flatten(0, 1)


def _rms(norm: RMSNorm) -> NativeNorm:
    return NativeNorm(norm.weight, NORM_EPS)


def _linear(linear: nn.Linear, scale: Tensor | None = None) -> NativeTaps:
    """Return a linear map as a convolution of one tap, its outputs scaled."""
    weight: Tensor = linear.weight.unsqueeze(2)
    bias: Tensor | None = linear.bias
    if scale is not None:
        weight = weight * scale[:, None, None]
        bias = None if bias is None else bias * scale
    taps = NativeTaps(weight, bias)
    _hand_over(linear, taps)
    return taps


def _taps(conv: CausalConv1d) -> NativeTaps:
    inner = conv.conv
    assert conv.stride == 1 and inner.groups == 1 and inner.bias is not None
    taps = NativeTaps(inner.weight, inner.bias, step=inner.dilation[0])
    _hand_over(inner, taps)
    return taps


def _hand_over(module: nn.Linear | nn.Conv1d | nn.ConvTranspose1d, taps: NativeTaps) -> None:
    """Let a module hold its weights as they are laid out: memory for one copy is enough."""
    module.weight = nn.Parameter(taps.weight, requires_grad=False)
    if module.bias is not None:
        module.bias = nn.Parameter(taps.bias, requires_grad=False)
    trim_heap()


Module = TypeVar("Module", bound=nn.Module)
Half = TypeVar("Half", CodecEncoder, CodecDecoder)
_TF32_SINCE = (8, 0)  # compute capability


def wants_kernels(choice: str, device: torch.device | str) -> bool:
    """Return whether a half on this device is to use kernels: `auto` where they can be compiled.

    Raises:
        InvalidSpecError: the choice is none of `KERNEL_CHOICES`.
    """
    if choice not in KERNEL_CHOICES:
        raise InvalidSpecError(f"{choice!r} is not a setting for kernels; use auto or off.")
    device = torch.device(device)
    return choice == "auto" and device.type == "cuda" and why_unavailable(device) is None


def use_kernels(half: Module, operands: torch.dtype | None = None) -> Module:
    """Let kernels do the Snakes and residual units of a half, and return it.

    Args:
        operands: of a decoder's convolutions, which one kernel then does with their Snakes, and
            nothing else can run its weights any more; None leaves them to PyTorch.
    """
    importlib.import_module(KERNELS)  # a triton that cannot be imported shows now
    if isinstance(half, CodecDecoder) and operands is not None:
        fuse_linears(half.quantizer, operands)
        half.decoder.fused = FusedWaves(half.decoder, operands)
        return half
    for module in half.modules():
        if isinstance(module, Snake):
            module.inverse = (1 / (module.alpha.float() + 1e-9)).flatten()
        elif isinstance(module, ResidualUnit):
            module.has_kernels = True
    return half


def uses_kernels(half: nn.Module) -> bool:
    """Return whether a half's Snakes are kernels, or compiled code on a CPU."""
    if isinstance(half, CodecDecoder) and half.has_own_layers:
        return True
    return any(isinstance(each, Snake) and each.inverse is not None for each in half.modules())


def decoding_precision(name: str, device: torch.device | str) -> str:
    """Return the precision that a setting stands for, for a decoder on this device.

    `auto` is `tf32` where a CUDA device has it, with an error some 56 dB below the sound, else
    `float32`. Only decoding: an encoder's codes would be others.
    """
    if name != "auto":
        return name
    device = torch.device(device)
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _TF32_SINCE
    return "tf32" if has_tf32 else "float32"


def half_dtype(
    half_type: type[CodecEncoder | CodecDecoder], precision: str, device: torch.device | str
) -> torch.dtype:
    """Return the dtype of a half's weights in a precision, one of `PRECISIONS`.

    With tf32 the convolutions, 97 % of the work at full size, round what they multiply to ten bits
    and add in float32; the linear layers stay in float32: PyTorch has a switch for these too, but
    one that all threads share, and codes of a voice would depend on what else is decoded meanwhile.
    Where a decoder has its own kernel, this does both, the numbers of ten bits are float16, and
    those beyond 65504 become it.

    Raises:
        InvalidSpecError: there is none of this name, or `device` cannot compute in it.
    """
    if precision not in PRECISIONS:
        half = "encoder" if half_type is CodecEncoder else "decoder"
        raise InvalidSpecError(
            f"The codec's {half} runs in {', '.join(PRECISIONS)}, not in {precision!r}."
        )
    if precision == "tf32":
        _check_tf32(torch.device(device))
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def allow_tf32(half: Module) -> Module:
    """Let a half's convolutions take TF32, and return it.

    Those of the quantizers stay as they are: they cost nothing, and near ties between codes are
    decided by them.

    Raises:
        InvalidSpecError: its weights are not float32 on a CUDA device.
    """
    weight = next(half.parameters())
    _check_tf32(weight.device)
    if weight.dtype is not torch.float32:
        raise InvalidSpecError(f"TF32 is for float32 weights; these are {weight.dtype}.")
    quantizers = [module for module in half.modules() if isinstance(module, VectorQuantizer)]
    exact = {module for quantizer in quantizers for module in quantizer.modules()}
    for module in half.modules():
        if isinstance(module, Normed) and module not in exact:
            module.tf32 = True
    return half


def _check_tf32(device: torch.device) -> None:
    if device.type != "cuda":
        raise InvalidSpecError(
            f"TF32 needs a CUDA device, but the codec runs on {device.type}; use float32, "
            "which is exact, or bfloat16."
        )


def load_half(
    half_type: type[Half],
    checkpoint_dir: Path,
    device: torch.device | str,
    precision: str = "float32",
    *,
    kernels: str = "auto",
) -> Half:
    """Return a half with its weights on `device`; nothing of the other half leaves the file.

    Args:
        precision: one of `PRECISIONS`; codes depend on it, so only on an explicit setting.
        kernels: `auto` uses them where they can be compiled, on a CPU for the decoding half in
            float32; `off` nowhere.

    Raises:
        CheckpointError: the codec file is missing or not exactly a codec of this model.
        InvalidSpecError: as for `half_dtype`, or `kernels` is unknown.
    """
    dtype = half_dtype(half_type, precision, device)
    opened = open_codec(checkpoint_dir)
    with torch.device("meta"):
        half = half_type(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(half)}
    # A copy also where nothing changes: the file must not stay mapped under a running model.
    weights = {
        name: weight.to(device, dtype, copy=True) for name, weight in folded_weights(half, stored)
    }
    half.load_state_dict(weights, strict=True, assign=True)
    del weights  # what is laid out anew below must not be held twice
    half.requires_grad_(False)
    return prepare_half(half.eval(), precision, kernels=kernels)


load_encoder, load_decoder = partial(load_half, CodecEncoder), partial(load_half, CodecDecoder)


def prepare_half(half: Half, precision: str, *, kernels: str) -> Half:
    """Let a half that holds its weights compute as is asked; errors as for `load_half`."""
    if precision == "tf32":
        allow_tf32(half)
    if wants_kernels(kernels, half.device):
        return use_kernels(half, OPERANDS.get(precision))
    if kernels == "auto" and isinstance(half, CodecDecoder):
        compile_decoder(half)
    return half
