"""Build the codec's transformers, quantizers and both halves' stages, as its file names them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM, CodecConfig, TransformerConfig
from synth.engine.codec.layers import (
    ROPE_ROWS,
    CausalConv1d,
    CausalConvTranspose1d,
    Chain,
    ConvNeXtBlock,
    NormedConv1d,
    Past,
    Snake,
    residual_units,
)
from synth.engine.model.layers import apply_rope, rms_norm

if TYPE_CHECKING:
    from synth.engine.codec.fused import FusedWaves

NORM_EPS = 1e-5


def windowed_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attend causally, each query to the `window` keys up to its own; all [B, H, S, head_dim].

    Longer inputs go in blocks of `window` queries, so memory grows with S and not with its square.
    """
    length = q.shape[2]
    if length <= window:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    blocks = []
    for start in range(0, length, window):
        stop, oldest = min(start + window, length), max(0, start - window + 1)
        query = torch.arange(start, stop, device=q.device)[:, None]
        key = torch.arange(oldest, stop, device=q.device)[None, :]
        seen = (key <= query) & (key > query - window)
        blocks.append(
            F.scaled_dot_product_attention(
                q[:, :, start:stop], k[:, :, oldest:stop], v[:, :, oldest:stop], attn_mask=seen
            )
        )
    return torch.cat(blocks, dim=2)


class RMSNorm(nn.Module):
    """Divide by the root mean square over channels; the weight comes after the cast back."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, NORM_EPS)


class LayerScale(nn.Module):
    """Multiply each channel by a learnt number."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Attention(nn.Module):
    """Attend over a causal window with rotary positions; every head has its own keys."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        inner = config.num_heads * HEAD_DIM
        self.window = config.window
        self.carried = ((config.num_heads, config.window - 1, HEAD_DIM),) * 2
        self.wqkv = nn.Linear(config.dim, 3 * inner, bias=False)
        self.wo = nn.Linear(inner, config.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor, past: Past | None) -> Tensor:
        """Map [B, S, dim] to the same shape; `table` holds the rotary numbers of S positions."""
        heads = self.wqkv(x).unflatten(-1, (3, -1, HEAD_DIM)).transpose(1, 3)
        q, k, v = heads.unbind(2)  # [B, H, S, head_dim] each
        q, k = apply_rope(q, table), apply_rope(k, table)
        if past is None:
            mixed = windowed_attention(q, k, v, self.window)
        else:
            mixed = past.attend(self, q, k, v, self.window)
        y: Tensor = self.wo(mixed.transpose(1, 2).flatten(2))
        return y


class FeedForward(nn.Module):
    """Map each position through a SwiGLU of `ffn_dim`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return y


class TransformerLayer(nn.Module):
    """Add attention, then feed-forward, each on a normed input and scaled per channel."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = RMSNorm(config.dim)
        self.ffn_norm = RMSNorm(config.dim)
        self.attention_layer_scale = LayerScale(config.dim)
        self.ffn_layer_scale = LayerScale(config.dim)

    def forward(self, x: Tensor, table: Tensor, past: Past | None) -> Tensor:
        attended = self.attention(self.attention_norm(x), table, past)
        x = x + self.attention_layer_scale(attended)
        y: Tensor = x + self.ffn_layer_scale(self.feed_forward(self.ffn_norm(x)))
        return y


class WindowedTransformer(nn.Module):
    """Run the layers and a last norm, channel-first outside; without a past from position 0."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.dim)

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        table = ROPE_ROWS.rows(0, x.shape[-1], x.device) if past is None else past.rope
        hidden = x.transpose(1, 2)
        for layer in self.layers:
            hidden = layer(hidden, table, past)
        y: Tensor = self.norm(hidden).transpose(1, 2)
        return y


class Codebook(nn.Module):
    """Hold a table of vectors; unlike nn.Embedding it draws no first values, not even on meta."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dim))


class VectorQuantizer(nn.Module):
    """Project to a few numbers, take the codebook row nearest in direction, project back."""

    def __init__(self, latent_dim: int, codebook_dim: int, codebook_size: int) -> None:
        super().__init__()
        self.in_proj = NormedConv1d(latent_dim, codebook_dim, 1)
        self.out_proj = NormedConv1d(codebook_dim, latent_dim, 1)
        self.in_proj.weight_norm = self.out_proj.weight_norm = "g_and_v"
        self.codebook = Codebook(codebook_size, codebook_dim)

    def search(self, z: Tensor) -> Tensor:
        """Return the codes of latents [B, D, T], int64 [B, T]; the first row wins a tie."""
        # Both sides on the unit sphere, where the squared distance orders rows as the cosine does;
        # in float32 whatever the weights are, for near ties decide which voice is stored.
        points = F.normalize(self.in_proj(z).float().transpose(1, 2), dim=-1)  # [B, T, numbers]
        rows = F.normalize(self.codebook.weight.float(), dim=-1)
        lengths = points.square().sum(-1, keepdim=True), rows.square().sum(-1)
        return (lengths[0] - 2 * points @ rows.t() + lengths[1]).argmin(-1)

    def lookup(self, codes: Tensor) -> Tensor:
        """Return the latents of codes [B, T], [B, D, T], from the rows as they are stored."""
        y: Tensor = self.out_proj(F.embedding(codes, self.codebook.weight).transpose(1, 2))
        return y


class QuantizerStack(nn.Module):
    """Quantize in steps, each taking what the steps before left over."""

    def __init__(self, count: int, latent_dim: int, codebook_dim: int, codebook_size: int) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(
            VectorQuantizer(latent_dim, codebook_dim, codebook_size) for _ in range(count)
        )
        self.codebook_size = codebook_size

    def encode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes of latents [B, D, T], int64 [B, count, T], and their sum, [B, D, T]."""
        codes, total, left = [], torch.zeros_like(z), z
        for quantizer in self.steps:
            chosen = quantizer.search(left)
            vector = quantizer.lookup(chosen)
            codes.append(chosen)
            total, left = total + vector, left - vector
        return torch.stack(codes, dim=1), total

    def decode(self, codes: Tensor) -> Tensor:
        """Return the sum of all steps' latents, [B, D, T], for codes [B, count, T].

        Codes above the codebook mean its last row, negative ones its first; the tensor given is
        left as it is.
        """
        rows = codes.clamp(0, self.codebook_size - 1).unbind(1)
        vectors = (step.lookup(row) for step, row in zip(self.steps, rows, strict=True))
        return functools.reduce(torch.add, vectors)

    @property
    def steps(self) -> list[VectorQuantizer]:
        return [cast("VectorQuantizer", step) for step in self.quantizers]


def _quantizers(config: CodecConfig) -> tuple[QuantizerStack, QuantizerStack]:
    """Build the semantic quantizer, row 0 of the codes, and the residual ones, the other rows."""
    sizes = (config.latent_dim, config.codebook_dim)
    residual = config.num_residual_codebooks
    return (
        QuantizerStack(1, *sizes, config.semantic_codebook_size),
        QuantizerStack(residual, *sizes, config.residual_codebook_size),
    )


class EncodingQuantizer(nn.Module):
    """Shorten latents to the frame rate, put them in context, and choose the codes."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.latent_dim
        self.downsample = Chain(
            *(
                Chain(
                    CausalConv1d(dim, dim, factor, stride=factor, weight_norm=None),
                    ConvNeXtBlock(dim),
                )
                for factor in config.downsample_factors
            )
        )
        self.pre_module = WindowedTransformer(config.pre_module)
        self.semantic_quantizer, self.quantizer = _quantizers(config)

    def forward(self, latents: Tensor, past: Past | None = None) -> Tensor:
        """Map [B, latent_dim, S] to codes, int64 [B, K, T]."""
        z = self.pre_module(self.downsample(latents, past), past)
        semantic_codes, semantic = self.semantic_quantizer.encode(z)
        residual_codes, _ = self.quantizer.encode(z - semantic)
        return torch.cat((semantic_codes, residual_codes), dim=1)


class Blocks(nn.Module):
    """Run modules one after the other."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.block = Chain(*modules)

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        y: Tensor = self.block(x, past)
        return y


class EncoderBlock(Blocks):
    """Refine at one width, then double the width and shorten by `stride`.

    It maps [B, dim, T] to [B, 2 dim, T / stride].
    """

    def __init__(self, dim: int, stride: int, *tail: nn.Module) -> None:
        widen = CausalConv1d(dim, 2 * dim, 2 * stride, stride=stride)
        super().__init__(*residual_units(dim), Snake(dim), widen, *tail)


class WaveEncoder(Blocks):
    """Map samples [B, 1, N] to latents [B, latent_dim, N / prod(strides)]."""

    def __init__(self, config: CodecConfig) -> None:
        dim = config.encoder_dim
        blocks: list[nn.Module] = [CausalConv1d(1, dim, 7)]
        last = len(config.encoder_strides) - 1
        for index, stride in enumerate(config.encoder_strides):
            tail = [WindowedTransformer(config.encoder_transformer)] if index == last else []
            blocks.append(EncoderBlock(dim, stride, *tail))
            dim *= 2
        super().__init__(*blocks, Snake(dim), CausalConv1d(dim, config.latent_dim, 3))


class DecoderBlock(Blocks):
    """Lengthen by `rate`, halve the width and refine: [B, dim, T] to [B, dim / 2, T * rate]."""

    def __init__(self, dim: int, rate: int) -> None:
        narrow = CausalConvTranspose1d(dim, dim // 2, 2 * rate, stride=rate)
        super().__init__(Snake(dim), narrow, *residual_units(dim // 2))


class WaveDecoder(nn.Module):
    """Map latents to samples between -1 and 1; `fused` does its layers' work where it is set."""

    fused: FusedWaves | None = None

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.decoder_dim
        blocks: list[nn.Module] = [CausalConv1d(config.latent_dim, dim, 7)]
        for rate in config.decoder_rates:
            blocks.append(DecoderBlock(dim, rate))
            dim //= 2
        self.model = Chain(*blocks, Snake(dim), CausalConv1d(dim, 1, 7), nn.Tanh())

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        """Map [B, latent_dim, T] to [B, 1, T * prod(rates)]."""
        if self.fused is not None:
            return self.fused(x, past)
        y: Tensor = self.model(x, past)
        return y


class DecodingQuantizer(nn.Module):
    """Look the codes up, put them in context, and lengthen to the decoder's rate."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.latent_dim
        self.semantic_quantizer, self.quantizer = _quantizers(config)
        self.post_module = WindowedTransformer(config.post_module)
        self.upsample = Chain(
            *(
                Chain(
                    CausalConvTranspose1d(dim, dim, factor, stride=factor, weight_norm=None),
                    ConvNeXtBlock(dim),
                )
                for factor in config.upsample_factors
            )
        )

    def forward(self, codes: Tensor, past: Past | None = None) -> Tensor:
        """Map codes, int64 [B, K, T], to latents [B, latent_dim, T * prod(factors)]."""
        z = self.semantic_quantizer.decode(codes[:, :1]) + self.quantizer.decode(codes[:, 1:])
        y: Tensor = self.upsample(self.post_module(z, past), past)
        return y
