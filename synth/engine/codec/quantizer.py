"""Turn latents into codes and codes into latents: one semantic codebook, then residual ones."""

from __future__ import annotations

import functools
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import NormedConv1d


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

        Codes above the codebook mean its last row; the tensor given is left as it is.
        """
        rows = codes.clamp(max=self.codebook_size - 1).unbind(1)
        vectors = (step.lookup(row) for step, row in zip(self.steps, rows, strict=True))
        return functools.reduce(torch.add, vectors)

    @property
    def steps(self) -> list[VectorQuantizer]:
        """Return the quantizers in their order."""
        return [cast("VectorQuantizer", step) for step in self.quantizers]


def semantic_stack(config: CodecConfig) -> QuantizerStack:
    """Build the one semantic quantizer, row 0 of the codes."""
    return QuantizerStack(1, config.latent_dim, config.codebook_dim, config.semantic_codebook_size)


def residual_stack(config: CodecConfig) -> QuantizerStack:
    """Build the residual quantizers, the rows after the first."""
    return QuantizerStack(
        config.num_residual_codebooks,
        config.latent_dim,
        config.codebook_dim,
        config.residual_codebook_size,
    )
