"""Test the search for the nearest code and the way back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from synth.engine.codec.quantizer import QuantizerStack, VectorQuantizer


@pytest.fixture
def stack() -> QuantizerStack:
    """Return three quantizers of 30 codes with random weights."""
    module = QuantizerStack(3, 12, 5, 30)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return module.requires_grad_(False)


def only(stack: QuantizerStack) -> VectorQuantizer:
    """Return the first quantizer."""
    first = stack.quantizers[0]
    assert isinstance(first, VectorQuantizer)
    return first


def test_search_takes_the_row_of_the_largest_cosine(stack: QuantizerStack) -> None:
    quantizer, z = only(stack), torch.randn(2, 12, 40)

    found = quantizer.search(z)

    points = quantizer.in_proj(z).transpose(1, 2).double()
    cosines = (
        F.normalize(points, dim=-1) @ F.normalize(quantizer.codebook.weight.double(), dim=-1).t()
    )
    assert torch.equal(found, cosines.argmax(-1))


def test_the_length_of_a_row_does_not_draw_the_search(stack: QuantizerStack) -> None:
    quantizer, z = only(stack), torch.randn(1, 12, 40)
    before = quantizer.search(z)

    quantizer.codebook.weight.mul_(torch.linspace(0.1, 9, 30)[:, None])

    assert torch.equal(quantizer.search(z), before)


def test_the_first_of_equal_rows_wins(stack: QuantizerStack) -> None:
    quantizer = only(stack)
    quantizer.codebook.weight[:] = quantizer.codebook.weight[7].clone()

    assert set(quantizer.search(torch.randn(1, 12, 20))[0].tolist()) == {0}


def test_lookup_uses_rows_as_stored_not_their_direction(stack: QuantizerStack) -> None:
    quantizer = only(stack)

    found = quantizer.lookup(torch.tensor([[3, 4]]))

    rows = quantizer.codebook.weight[[3, 4]]
    expected = F.linear(rows, quantizer.out_proj.weight[..., 0], quantizer.out_proj.bias)
    torch.testing.assert_close(found[0].t(), expected)


def test_each_step_quantizes_what_the_steps_before_left(stack: QuantizerStack) -> None:
    z = torch.randn(1, 12, 9)

    codes, total = stack.encode(z)

    left = z
    for row, quantizer in zip(codes.unbind(1), stack.quantizers, strict=True):
        assert isinstance(quantizer, VectorQuantizer)
        assert torch.equal(quantizer.search(left), row)
        left = left - quantizer.lookup(row)
    torch.testing.assert_close(total, z - left)
    torch.testing.assert_close(stack.decode(codes), total)


def test_codes_above_the_table_mean_its_last_row_and_are_not_changed(stack: QuantizerStack) -> None:
    codes = torch.tensor([[[5, 30], [99999, 0], [29, 127]]])
    before = codes.clone()

    found = stack.decode(codes)

    assert torch.equal(codes, before)
    assert torch.equal(found, stack.decode(codes.clamp(max=29)))


def test_the_search_is_float32_in_a_bfloat16_model(stack: QuantizerStack) -> None:
    quantizer = only(stack).bfloat16()
    z = torch.randn(1, 12, 200).bfloat16()

    points = quantizer.in_proj(z).float().transpose(1, 2)
    rows = F.normalize(quantizer.codebook.weight.float(), dim=-1)

    assert torch.equal(quantizer.search(z), (F.normalize(points, dim=-1) @ rows.t()).argmax(-1))
