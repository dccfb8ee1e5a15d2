"""Hold every kernel beside its torch form, at the full model's shapes.

Only where `synth.engine.kernels.why_unavailable` says nothing: kernels are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lab.gpu_check.conv_layers import ConvCall, ConvLayer, conv_layers
from lab.gpu_check.steps import has_fp8
from lab.gpu_check.torch_forms import (
    add_branch_torch,
    add_rms_norm_torch,
    convolve_torch,
    draw_codes_torch,
    draw_tokens_torch,
    embed_columns_torch,
    gemv_torch,
    prompt_attention_torch,
    snake_torch,
    step_attention_torch,
    step_frame_torch,
    swiglu_torch,
)
from synth.contract import MAX_TOP_K
from synth.engine.kernels.attention import prompt_attention, step_attention
from synth.engine.kernels.frame import step_frame
from synth.engine.kernels.gemv import MAX_ROWS, gemv
from synth.engine.kernels.rowwise import add_branch, add_rms_norm, embed_columns, snake, swiglu
from synth.engine.kernels.sampler import DrawInputs, TokenDraw, TokenRows, draw_codes, draw_tokens
from synth.engine.model.layers import PASS_ALIGNMENT
from synth.engine.model.linear import ScaledRows
from synth.engine.model.sampling import RAS_WINDOW, SLOW_DRAWS

BATCHES = (1, 8, 64)

Tensors = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """Hold one kernel at one shape, ready to be called any number of times.

    Both callables compute the same from the same inputs and return the same tensors, which may be
    compared (a part of a cache that was written is returned too); neither takes arguments, and each
    call allocates its results. Inputs stay in a device's cache between calls unless they are larger
    or whoever measures clears it.
    """

    name: str  # of the kernel
    shape: str  # as a person reads it
    kernel: Callable[[], Tensors]
    torch_form: Callable[[], Tensors]
    num_bytes: int  # the fewest that must move: inputs read once, results written once


def kernel_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return the cases of all kernels, with random inputs on a device; they take some gigabytes."""
    return [case for cases in CASES.values() for case in cases(device, dtype)]


def embed_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of columns of codes, of a vocabulary cut to its semantic part."""
    text, audio = (random(rows, 2560, device=device, dtype=dtype) for rows in (4096, 40_960))
    return [_embed_case(batch, text, audio) for batch in BATCHES]


def _embed_case(batch: int, text: Tensor, audio: Tensor) -> KernelCase:
    columns = torch.arange(batch * 11, device=text.device).view(batch, 11) * 17 % 4096
    ends = {"semantic_begin": 0, "semantic_end": 4095}
    return KernelCase(
        "embed_columns",
        f"{batch} x 11 to {batch} x {text.shape[1]}",
        lambda: embed_columns(columns, text, audio, **ends),
        lambda: embed_columns_torch(columns, text, audio, **ends),
        num_bytes(columns) + 12 * batch * text.shape[1] * text.element_size(),
    )


def frame_attention_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of one layer of the full model, at a frame's last codebook."""
    return [
        _frame_attention_case(batch, normed, device, dtype)
        for batch in BATCHES
        for normed in (False, True)
    ]


def _frame_attention_case(
    batch: int, normed: bool, device: torch.device, dtype: torch.dtype
) -> KernelCase:
    qkv = random(batch, 48 * 128, device=device, dtype=dtype)
    keys = random(batch, 8, 10, 128, device=device, dtype=dtype)
    values = keys.flip(-1).contiguous()
    rope = random(10, 64, 2, device=device, dtype=torch.float32)
    weight = random(40, 128, device=device, dtype=dtype) if normed else None

    def call(function: object) -> tuple[Tensor, ...]:
        assert callable(function)
        mixed = function(qkv, rope, keys, values, 9, weight=weight, eps=1e-6)
        return mixed, keys[:, :, 9], values[:, :, 9]

    return KernelCase(
        "step_frame",
        f"{batch} streams, 10 positions" + (", q/k norm" if normed else ""),
        lambda: call(step_frame),
        lambda: call(step_frame_torch),
        num_bytes(keys, values, qkv) + num_bytes(qkv) * 32 // 48,
    )


@dataclass(frozen=True, slots=True)
class _Product:
    """Name a product of the full model."""

    name: str
    num_out: int
    num_in: int
    normed: bool = False
    gated: bool = False


_PRODUCTS = (
    _Product("qkv", 6144, 2560, normed=True),
    _Product("wo", 2560, 4096),
    _Product("w1 and w3", 9728, 2560, normed=True, gated=True),
    _Product("w2", 2560, 9728),
    _Product("head", 4112, 2560),
)


def gemv_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of the full model's products, of few rows, in 8 bits also of many.

    Of a matrix in 16 bits a product of 64 rows is left to the library.
    """
    found = []
    eight_bits = (torch.int8, torch.float8_e4m3fn) if has_fp8(device) else (torch.int8,)
    for product in _PRODUCTS:
        shape = (product.num_out * (2 if product.gated else 1), product.num_in)
        weight = random(*shape, device=device, dtype=dtype, scale=0.02)
        found += [_gemv_case(product, rows, weight, dtype) for rows in (1, 2, 8, 16)]
        for each in eight_bits:
            scaled = ScaledRows.of(weight, each)
            found += [_gemv_case(product, rows, scaled, dtype) for rows in (1, 2, 8, 24, 64, 512)]
    return found


def _gemv_case(
    product: _Product, rows: int, weight: Tensor | ScaledRows, dtype: torch.dtype
) -> KernelCase:
    eight = ""
    if isinstance(weight, ScaledRows):
        eight = " of fp8" if weight.is_fp8 else " of int8"
    numbers = weight.numbers if isinstance(weight, ScaledRows) else weight
    x = random(rows, product.num_in, device=numbers.device, dtype=dtype)
    residual = None if product.normed else x.new_ones(rows, product.num_out)
    # Of more rows frames normalise before the product and gate behind it.
    norm = x[0].contiguous() if product.normed and rows <= MAX_ROWS else None
    gated = product.gated and rows <= MAX_ROWS
    moved = num_bytes(numbers, x) + x.element_size() * rows * product.num_out

    def call(function: object) -> Tensor:
        assert callable(function)
        out: Tensor = function(x, weight, norm=norm, eps=1e-6, residual=residual, gated=gated)
        return out

    return KernelCase(
        f"gemv{eight}",
        f"{product.name}, {rows} x {product.num_in} to {product.num_out}",
        lambda: call(gemv),
        lambda: call(gemv_torch),
        moved,
    )


def rowwise_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of embeddings, norms and gates."""
    kinds = (embed_cases, norm_cases, swiglu_cases)
    return [case for cases in kinds for case in cases(device, dtype)]


def norm_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of the full model's width."""
    return [_norm_case(rows, random(rows, 2560, device=device, dtype=dtype)) for rows in BATCHES]


def _norm_case(rows: int, x: Tensor) -> KernelCase:
    residual, weight = x.flip(0).contiguous(), x[0].contiguous()
    return KernelCase(
        "add_rms_norm",
        f"{rows} x {x.shape[1]}",
        lambda: add_rms_norm(x, residual, weight, 1e-6),
        lambda: add_rms_norm_torch(x, residual, weight, 1e-6),
        2 * num_bytes(x, residual) + num_bytes(weight),
    )


def sampler_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of both heads of the full model."""
    return [case for batch in BATCHES for case in _sampler_shape(batch, device, dtype)]


def _sampler_shape(batch: int, device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    spread = random(batch, 4112, device=device, dtype=dtype, scale=4.0)[:, :4097]
    codes = spread[:, :4096].contiguous()
    full = torch.full((batch,), 1.0, device=device)
    zeros = torch.zeros(batch, device=device, dtype=torch.int64)
    seed = torch.arange(batch, device=device) * 0x9E3779B97F4A
    inputs = DrawInputs(full * 0.8, full * 0.9, zeros + 30, seed, zeros + 7, zeros, MAX_TOP_K)
    rows = TokenRows(torch.arange(1000, 5097, device=device), 1001, 5096)
    window, nobody = torch.zeros(batch, RAS_WINDOW, device=device).long(), zeros.bool()

    def both(sample: Callable[..., Tensor]) -> Callable[[], tuple[Tensor, Tensor]]:
        def call() -> tuple[Tensor, Tensor]:
            finite = torch.ones_like(nobody)
            return sample(codes, inputs, SLOW_DRAWS, finite), finite

        return call

    def tokens(sample: Callable[..., TokenDraw]) -> Callable[[], tuple[Tensor, ...]]:
        def call() -> tuple[Tensor, ...]:
            drawn = sample(spread, inputs, rows, window, nobody)
            return drawn.first, drawn.second, drawn.token, drawn.code, drawn.finite

        return call

    return [
        KernelCase(
            "draw_tokens",
            f"{batch} x 4097, 64 candidates",
            tokens(draw_tokens),
            tokens(draw_tokens_torch),
            num_bytes(spread),
        ),
        KernelCase(
            "draw_codes",
            f"{batch} x 4096, 64 candidates",
            both(draw_codes),
            both(draw_codes_torch),
            num_bytes(codes),
        ),
    ]


def conv_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of the decoder's convolutions, of one frame and of 8 of 16 streams.

    Products of float32 numbers take float16, as a decoder in `tf32` does.
    """
    operands = dtype if dtype is torch.bfloat16 else torch.float16
    return [
        _conv_case(layer, ConvCall(layer, batch, frames, partial(random, device=device), operands))
        for batch, frames in ((1, 1), (16, 8))
        for layer in conv_layers()
    ]


def _conv_case(layer: ConvLayer, call: ConvCall) -> KernelCase:
    return KernelCase(
        "convolve",
        f"{layer.name} {layer.ins} to {layer.outs}, {call.shape}",
        call,
        lambda: call.with_form(convolve_torch),
        call.num_bytes,
    )


def snake_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of the decoder's widest tensors, of 4 and of 64 frames."""
    return [
        case
        for frames in (4, 64)
        for channels, columns in ((768, 32 * frames), (96, 2048 * frames))
        for case in _snake_shape(random(1, channels, columns, device=device, dtype=dtype))
    ]


def _snake_shape(x: Tensor) -> list[KernelCase]:
    left, branch = 18, x.flip(2)
    alpha = x[0, :, 0].abs() + 0.5
    inverse, bias, shape = 1 / alpha.float(), x[0, :, 1].clone(), " x ".join(map(str, x.shape))
    return [
        KernelCase(
            "snake",
            f"{shape}, {left} columns of padding",
            lambda: snake(x, alpha, inverse, left=left),
            lambda: snake_torch(x, alpha, inverse, left=left),
            2 * num_bytes(x),
        ),
        KernelCase(
            "snake after a bias",
            shape,
            lambda: snake(x, alpha, inverse, bias=bias),
            lambda: snake_torch(x, alpha, inverse, bias=bias),
            2 * num_bytes(x),
        ),
        KernelCase(
            "add_branch",
            shape,
            lambda: add_branch(x, branch, bias),
            lambda: add_branch_torch(x, branch, bias),
            3 * num_bytes(x),
        ),
    ]


def attention_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of one layer of the full model: steps, then passes of prompts.

    Every stream of a step is at 1,200 of 2,048 positions. In a pass of 64 one text follows a voice,
    in one of 512 a part of a voice and several texts stand side by side.
    """
    steps = [
        _attention_case(batch, split, device, dtype)
        for batch in BATCHES
        for split in (64, 128, 256)
    ]
    passes = (((1000, 59),), ((512, 250), (1000, 40), (700, 90), (0, 60)))
    return steps + [_prompt_case(spans, device, dtype) for spans in passes]


def _attention_case(batch: int, split: int, device: torch.device, dtype: torch.dtype) -> KernelCase:
    qkv = random(batch, 48 * 128, device=device, dtype=dtype)
    keys = random(batch, 8, 2048, 128, device=device, dtype=dtype)
    values = random(batch, 8, 2048, 128, device=device, dtype=dtype).flip(-1).contiguous()
    rope = random(2048, 64, 2, device=device, dtype=torch.float32)
    weight = random(40, 128, device=device, dtype=dtype)
    position = torch.full((batch,), 1199, device=device)

    def call(function: object) -> tuple[Tensor, ...]:
        assert callable(function)
        mixed = function(qkv, rope, keys, values, position, weight=weight, eps=1e-6, split=split)
        return mixed, keys[:, :, 1199], values[:, :, 1199]

    return KernelCase(
        "step_attention",
        f"{batch} streams, 1200 positions, splits of {split}",
        lambda: call(step_attention),
        lambda: call(step_attention_torch),
        num_bytes(keys, values) * 1200 // 2048 + 2 * num_bytes(qkv),
    )


def _prompt_case(
    spans: Sequence[tuple[int, int]], device: torch.device, dtype: torch.dtype
) -> KernelCase:
    """Return a case of parts that begin at a position and have a length, one a slot."""
    size = 64 if len(spans) == 1 else 512
    qkv = random(size, 48 * 128, device=device, dtype=dtype)
    keys = random(len(spans), 8, 2048, 128, device=device, dtype=dtype)
    values = keys.flip(-1).contiguous()
    rope = random(2048, 64, 2, device=device, dtype=torch.float32)
    weight = random(40, 128, device=device, dtype=dtype)
    positions, slots = torch.full((size,), -1), torch.zeros(size, dtype=torch.int64)
    row, seen = 0, 0
    for slot, (start, length) in enumerate(spans):
        positions[row : row + length] = torch.arange(start, start + length)
        slots[row : row + length] = slot
        row, seen = -(-(row + length) // PASS_ALIGNMENT) * PASS_ALIGNMENT, seen + start + length
    there = (positions >= 0).to(device)
    positions, slots = positions.to(device), slots.to(device)
    written = (slots[there], slice(None), positions[there])

    def call(function: object) -> tuple[Tensor, ...]:
        assert callable(function)
        mixed = function(qkv, rope, keys, values, positions, slots=slots, weight=weight, eps=1e-6)
        return mixed[there], keys[written], values[written]

    moved = num_bytes(keys, values) * seen // (2048 * len(spans)) + 2 * num_bytes(qkv)
    return KernelCase(
        "prompt_attention",
        f"{size} rows, " + " and ".join(f"{length} behind {start}" for start, length in spans),
        lambda: call(prompt_attention),
        lambda: call(prompt_attention_torch),
        moved,
    )


def swiglu_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return cases of the full model's feed-forward."""
    return [_swiglu_case(random(rows, 2 * 9728, device=device, dtype=dtype)) for rows in BATCHES]


def _swiglu_case(joined: Tensor) -> KernelCase:
    rows, width = joined.shape
    return KernelCase(
        "swiglu",
        f"{rows} x {width}",
        lambda: swiglu(joined),
        lambda: swiglu_torch(joined),
        num_bytes(joined) * 3 // 2,
    )


def num_bytes(*tensors: Tensor) -> int:
    """Return the bytes of tensors together."""
    return sum(each.numel() * each.element_size() for each in tensors)


def random(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Return normal numbers; each call with the same shape gives the same ones."""
    generator = torch.Generator(device=device).manual_seed(sum(shape))
    drawn = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return drawn.mul_(scale).to(dtype)


# By the name of the kernel's module; Snake, of the codec, stands in `rowwise`.
CASES = {
    "attention": attention_cases,
    "convolution": conv_cases,
    "frame": frame_attention_cases,
    "gemv": gemv_cases,
    "rowwise": rowwise_cases,
    "sampler": sampler_cases,
    "snake": snake_cases,
}
