"""Test shared_prefix; the torch form against slots that hold copies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from synth.engine.kernels.attention import decode_attention
from synth.engine.kernels.shared_prefix import (
    PrefixGroups,
    PrefixPool,
    shared_attention,
    shared_attention_torch,
)
from synth.engine.model.attention import step_attention, step_mask

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}  # of bfloat16: one unit in the last place
SPLIT = 64
LENGTH = 200  # positions of the cache; the pool has room for 130


@dataclass
class Layer:
    """Hold the inputs of one call; what may not be read is NaN."""

    q: Tensor
    keys: Tensor
    values: Tensor
    position: Tensor
    pool: PrefixPool
    groups: PrefixGroups

    def attend(self, streams: slice = slice(None)) -> Tensor:
        q, keys, values = self.q[streams], self.keys[streams], self.values[streams]
        position = self.position[streams]
        return shared_attention(q, keys, values, position, self.pool, self.groups, split=SPLIT)

    def specified(self) -> Tensor:
        return shared_attention_torch(
            self.q, self.keys, self.values, self.position, self.pool, self.groups, split=SPLIT
        )


def _layer(
    generator: torch.Generator,
    *,
    group: list[int],
    lengths: list[int],
    position: list[int],
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Layer:
    device, batch = generator.device, len(group)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    keys, values = drawn(2, batch, heads[1], LENGTH, head_dim)
    pool = PrefixPool(*drawn(2, len(lengths), heads[1], 130, head_dim))
    for kept in (pool.keys, pool.values):
        for prefix, length in enumerate(lengths):
            kept[prefix, :, length:] = float("nan")
    for cache in (keys, values):
        for stream, (mine, last) in enumerate(zip(group, position, strict=True)):
            cache[stream, :, last + 1 :] = float("nan")
            cache[stream, :, : lengths[mine] if mine >= 0 else 0] = float("nan")
    groups = PrefixGroups.allocate(batch, len(lengths), device)
    groups.assign(torch.tensor(group, device=device), torch.tensor(lengths, device=device))
    q = drawn(batch, heads[0], head_dim)
    return Layer(q, keys, values, torch.tensor(position, device=device), pool, groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((8, 2), 128)])
def test_the_kernel_gives_what_its_torch_form_gives(
    generator: torch.Generator, heads: tuple[int, int], head_dim: int, dtype: torch.dtype
) -> None:
    layer = _layer(
        generator,
        group=[1, 0, -1, 1, 2, 1],
        lengths=[100, SPLIT, 130, 1],
        position=[SPLIT, 199, 70, 150, 131, 127],
        heads=heads,
        head_dim=head_dim,
        dtype=dtype,
    )

    found = layer.attend()

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found, layer.specified(), atol=tolerance, rtol=tolerance)


def test_the_torch_form_is_the_engines_attention_over_copied_prefixes(
    generator: torch.Generator,
) -> None:
    layer = _layer(generator, group=[0, 1, 0], lengths=[100, 20], position=[150, 30, 100])
    for slot, (mine, length) in enumerate(((0, 100), (1, 20), (0, 100))):
        layer.keys[slot, :, :length] = layer.pool.keys[mine, :, :length]
        layer.values[slot, :, :length] = layer.pool.values[mine, :, :length]
    keys, values = layer.keys.nan_to_num(), layer.values.nan_to_num()

    expected = step_attention(layer.q, keys, values, step_mask(layer.position, LENGTH))

    torch.testing.assert_close(layer.specified(), expected, atol=1e-6, rtol=0)


def test_a_group_may_be_of_more_streams_than_read_together(generator: torch.Generator) -> None:
    layer = _layer(
        generator, group=[0] * 18, lengths=[70], position=list(range(70, 88)), heads=(4, 1)
    )

    torch.testing.assert_close(layer.attend(), layer.specified(), atol=2e-6, rtol=0)


def test_a_stream_without_a_group_attends_as_if_there_were_none(
    generator: torch.Generator,
) -> None:
    layer = _layer(generator, group=[-1, 0, -1], lengths=[64], position=[0, 64, 199])

    found = layer.attend()

    q, keys, values = layer.q[::2], layer.keys[::2], layer.values[::2]
    alone = decode_attention(q, keys, values, layer.position[::2].contiguous(), split=SPLIT)
    assert torch.equal(found[::2], alone)


def test_who_else_is_in_a_group_changes_no_bit(generator: torch.Generator) -> None:
    layer = _layer(generator, group=[0, 0, 0, 0], lengths=[100, 100], position=[100, 130, 163, 199])
    together = layer.attend()

    layer.groups.assign(torch.tensor([1, 1, 0, 1]), layer.groups.lengths)

    assert torch.equal(layer.attend()[2], together[2])


def test_a_bucket_is_served_by_the_groups_of_all_streams(generator: torch.Generator) -> None:
    layer = _layer(
        generator, group=[0, 1, -1, -1, -1], lengths=[64, 90], position=[80, 95, 3, 0, 0]
    )
    whole = layer.attend()

    layer.groups = layer.groups.first(3)

    assert torch.equal(layer.attend(slice(3)), whole[:3])


def test_groups_change_in_place(generator: torch.Generator) -> None:
    layer = _layer(generator, group=[0, 0], lengths=[64, 64], position=[100, 100])
    tensors = [layer.groups.group, layer.groups.lengths, layer.groups.order, layer.groups.starts]
    places = [each.data_ptr() for each in tensors]
    before = layer.attend()

    layer.groups.assign(torch.tensor([0, 1]), torch.tensor([64, 64]))

    assert places == [each.data_ptr() for each in tensors]
    after = layer.attend()
    assert torch.equal(after[0], before[0]) and not torch.equal(after[1], before[1])
    torch.testing.assert_close(after, layer.specified(), atol=2e-6, rtol=0)


def test_a_stream_that_has_left_gives_finite_numbers(generator: torch.Generator) -> None:
    layer = _layer(generator, group=[0, 0], lengths=[100], position=[120, 110])
    layer.position[1] = 0  # as `release` leaves it

    found = layer.attend()

    assert bool(found.isfinite().all())
