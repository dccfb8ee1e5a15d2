"""Columns are embedded by a kernel as the slow AR does it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.golden.models import Loaded
from synth.engine.kernels.embed import embed_columns, embed_columns_torch
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

BEGIN, END = 20, 29


def columns_of(generator: torch.Generator, tokens: list[int], codebooks: int, size: int) -> Tensor:
    """Return columns of these tokens beside random codes."""
    device = generator.device
    codes = torch.randint(size, (len(tokens), codebooks), generator=generator, device=device)
    return torch.cat([torch.tensor(tokens, device=device)[:, None], codes], dim=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "codebooks"), [(7, 1), (48, 10), (600, 3)])
def test_tokens_at_and_beside_the_ends_of_the_semantic_ones_are_those_of_the_torch_form(
    generator: torch.Generator, dtype: torch.dtype, width: int, codebooks: int
) -> None:
    columns = columns_of(generator, [0, BEGIN - 1, BEGIN, END, END + 1, 39], codebooks, size=10)
    text = draw(generator, 40, width, dtype=dtype)
    audio = draw(generator, codebooks * 10, width, dtype=dtype)

    found = embed_columns(columns, text, audio, semantic_begin=BEGIN, semantic_end=END)

    expected = embed_columns_torch(columns, text, audio, semantic_begin=BEGIN, semantic_end=END)
    assert_close(found, expected)
    plain = torch.tensor([0, 1, 4, 5], device=text.device)
    assert torch.equal(found[plain], text[columns[plain, 0]])


@torch.inference_mode()
def test_torch_form_is_the_embedding_of_the_slow_ar(
    loaded: Loaded, loaded_bf16: Loaded, generator: torch.Generator
) -> None:
    for model in (loaded.model, loaded_bf16.model):
        slow, special = model.slow, model.special
        tokens = [3, special.semantic_begin, special.semantic_end, special.im_end]
        columns = columns_of(generator, tokens, slow.num_codebooks, slow.codebook_size)

        found = embed_columns_torch(
            columns.to(model.device),
            slow.embeddings.weight,
            slow.codebook_embeddings.weight,
            semantic_begin=special.semantic_begin,
            semantic_end=special.semantic_end,
        )

        assert torch.equal(found, slow.embed(columns.to(model.device)))
