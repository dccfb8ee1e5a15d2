"""Look columns of a token and its codes up and add their embeddings, in one kernel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def embed_columns(
    columns: Tensor, text: Tensor, audio: Tensor, *, semantic_begin: int, semantic_end: int
) -> Tensor:
    """Return the input vectors of columns, [B, W].

    Codes count beside a semantic token alone; there the sum of all embeddings is scaled. Sums are
    float32, rounded after the codes, after the token and after the scaling.

    Args:
        columns: int64 [B, 1 + K] contiguous; every id and code within its table.
        text: [V, W]; audio: [K * C, W], of one codebook after the other.
        semantic_begin, semantic_end: the first and the last semantic token.
    """
    batch, height = columns.shape
    width = text.shape[1]
    assert columns.is_contiguous() and text.is_contiguous() and audio.is_contiguous()
    out = torch.empty(batch, width, device=text.device, dtype=text.dtype)
    _embed[(batch, triton.cdiv(width, _BLOCK))](
        columns,
        text,
        audio,
        out,
        semantic_begin,
        semantic_end,
        audio.shape[0] // (height - 1),
        math.sqrt(height),
        WIDTH=width,
        CODEBOOKS=height - 1,
        BLOCK=_BLOCK,
        num_warps=2,
    )
    return out


def embed_columns_torch(
    columns: Tensor, text: Tensor, audio: Tensor, *, semantic_begin: int, semantic_end: int
) -> Tensor:
    """Specify `embed_columns`."""
    tokens, codes = columns[:, 0], columns[:, 1:]
    starts = torch.arange(codes.shape[1], device=codes.device) * (audio.shape[0] // codes.shape[1])
    plain = F.embedding(tokens, text)
    scaled = (plain + F.embedding(codes + starts, audio).sum(dim=-2)) / math.sqrt(columns.shape[1])
    is_semantic = (tokens >= semantic_begin) & (tokens <= semantic_end)
    return torch.where(is_semantic[:, None], scaled, plain)


@triton.jit
def _embed(
    columns,
    text,
    audio,
    out,
    semantic_begin,
    semantic_end,
    codebook_size,
    root,
    WIDTH: tl.constexpr,
    CODEBOOKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Handle BLOCK numbers of one column per program."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < WIDTH
    dtype = out.dtype.element_ty
    column = columns + row * (1 + CODEBOOKS)
    token = tl.load(column)
    value = tl.load(text + token * WIDTH + place, mask=inside, other=0.0)
    if (token >= semantic_begin) & (token <= semantic_end):
        total = tl.zeros([BLOCK], tl.float32)
        for book in tl.static_range(CODEBOOKS):
            code = tl.load(column + 1 + book) + book * codebook_size
            total += tl.load(audio + code * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
        both = (value.to(tl.float32) + total.to(dtype).to(tl.float32)).to(dtype)
        value = (both.to(tl.float32) / root).to(dtype)
    tl.store(out + row * WIDTH + place, value, mask=inside)
