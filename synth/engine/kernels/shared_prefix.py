"""Attend over a cache whose streams begin alike: what they share is read once for all of them.

The streams of a group have one prefix in common, kept in a pool beside the cache; a stream's own
positions stay where they are in its cache, behind the number that the prefix has. The parts of the
prefix are merged with the stream's own by their peaks and weights, in one order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.kernels.attention import (
    LOG2_E,
    Parts,
    attend_splits,
    block_positions,
    check_cache,
    decode_attention_torch,
    merge_splits,
    needs_wide_products,
)
from synth.engine.kernels.attention_kernels import attend_block
from synth.engine.model.attention import SPLIT_POSITIONS

_TILE_ROWS = 64  # query heads of several streams that read a prefix together


@dataclass(frozen=True, slots=True, eq=False)
class PrefixGroups:
    """Say which streams share which prefix, all int64 on the device.

    `group` [B], -1 for a stream that shares nothing; `lengths` [P], positions of each prefix;
    `order` [B], the streams group by group; `starts` [P + 1], where in it each group begins and the
    last one ends. Written in place when streams come and go, so that a graph may point to them.
    """

    group: Tensor
    lengths: Tensor
    order: Tensor
    starts: Tensor

    @classmethod
    def allocate(cls, num_streams: int, num_prefixes: int, device: torch.device) -> PrefixGroups:
        """Return groups that nobody is in."""
        sizes = (num_streams, num_prefixes, num_streams, num_prefixes + 1)
        group, *rest = (torch.zeros(size, dtype=torch.int64, device=device) for size in sizes)
        return cls(group.fill_(-1), *rest)

    def assign(self, group: Tensor, lengths: Tensor) -> None:
        """Take other groups [B] and lengths [P]; waits for nothing."""
        self.group.copy_(group)
        self.lengths.copy_(lengths)
        ordered, order = self.group.sort(stable=True)
        self.order.copy_(order)
        every = torch.arange(self.starts.shape[0], device=self.starts.device)
        self.starts.copy_(torch.searchsorted(ordered, every))

    def first(self, num_streams: int) -> PrefixGroups:
        """Return the groups of the first streams, when no other stream is in one."""
        # Those in no group stand first in the order: a bucket needs all of it.
        return PrefixGroups(self.group[:num_streams], self.lengths, self.order, self.starts)


@dataclass(frozen=True, slots=True, eq=False)
class PrefixPool:
    """Hold one layer's keys and values of all prefixes, [P, KV, S, D] each, of the same strides."""

    keys: Tensor
    values: Tensor


def shared_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    pool: PrefixPool,
    groups: PrefixGroups,
    *,
    split: int = SPLIT_POSITIONS,
) -> Tensor:
    """Attend as `decode_attention`, with a group's prefix in place of its streams' first positions.

    A stream of group g attends over `lengths[g]` positions of the pool and over its own cache from
    that position on; `position` counts both and is not below that length, nor that length above
    what the pool has room for. A prefix is read once for every 64 query heads that
    share a key head in its group. Neighbours change no bit, but splits do not begin where those of
    `decode_attention` do: the same stream without a group is equal up to rounding alone.
    """
    batch, heads, head_dim = q.shape
    prefixes, kv_heads, room, _ = pool.keys.shape
    check_cache(q, pool.keys, pool.values)
    block = block_positions(pool.keys)
    assert pool.keys.dtype == keys.dtype and kv_heads == keys.shape[1] and split % block == 0
    skip, length = triton.cdiv(room, split), keys.shape[2]
    parts = Parts.allocate(q, skip + triton.cdiv(length, split))
    sharing = {"own_from": groups.lengths, "group": groups.group, "skip": skip}
    lanes = triton.next_power_of_2(heads // kv_heads)
    tiles = triton.cdiv(batch * lanes, _TILE_ROWS)
    _attend_prefix[(kv_heads, tiles, prefixes * skip)](
        q,
        pool.keys,
        pool.values,
        groups.lengths,
        groups.order,
        groups.starts,
        parts.mixed,
        parts.peaks,
        parts.weights,
        head_dim**-0.5 * LOG2_E,
        room,
        skip,
        parts.peaks.shape[2],
        q.stride(0),
        q.stride(1),
        *pool.keys.stride()[:3],
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        LANES=lanes,
        ROWS=_TILE_ROWS,
        HEAD_DIM=head_dim,
        WIDTH=max(triton.next_power_of_2(head_dim), 16),
        SPLIT=split,
        BLOCK=block,
        WIDE=needs_wide_products(pool.keys),
        num_warps=4,
        num_stages=3,
    )
    attend_splits(q, keys, values, position, parts, split=split, **sharing)
    return merge_splits(q, position, parts, length, split=split, **sharing)


def shared_attention_torch(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    pool: PrefixPool,
    groups: PrefixGroups,
    *,
    split: int = SPLIT_POSITIONS,
) -> Tensor:
    """Specify `shared_attention`: put the prefixes where they would be copied, and attend."""
    room = min(pool.keys.shape[2], keys.shape[2])
    whose = groups.group.clamp(min=0)
    lengths = torch.where(groups.group >= 0, groups.lengths[whose], 0)
    shared = torch.arange(room, device=q.device) < lengths[:, None]
    in_prefix = shared[:, None, :, None]
    joined_keys, joined_values = keys.clone(), values.clone()
    for joined, kept in ((joined_keys, pool.keys), (joined_values, pool.values)):
        joined[:, :, :room] = torch.where(in_prefix, kept[whose, :, :room], joined[:, :, :room])
    return decode_attention_torch(q, joined_keys, joined_values, position, split=split)


@triton.jit(do_not_specialize=["room", "splits", "num_parts"])
def _attend_prefix(
    q,
    keys,
    values,
    lengths,
    order,
    starts,
    mixed_out,
    peaks_out,
    weights_out,
    scale,
    room,
    splits,
    num_parts,
    q_stream,
    q_head,
    pool_prefix,
    pool_head,
    pool_position,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Attend with ROWS query heads of a group's streams over one split of its prefix per program.

    LANES rows are a stream's, GROUP of them its query heads of this key head.
    """
    kv_head, tile = tl.program_id(0), tl.program_id(1)
    prefix, split = (tl.program_id(2) // splits).to(tl.int64), tl.program_id(2) % splits
    begin = tl.load(starts + prefix).to(tl.int32) + tile * (ROWS // LANES)
    stop = tl.load(starts + prefix + 1).to(tl.int32)
    first = split * SPLIT
    end = tl.minimum(tl.minimum(tl.load(lengths + prefix).to(tl.int32), room), first + SPLIT)
    if (begin >= stop) | (first >= end):
        return
    row, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    nth, lane = begin + row // LANES, row % LANES
    taken = (nth < stop) & (lane < GROUP)
    stream = tl.load(order + nth, mask=taken, other=0)
    head = kv_head * GROUP + lane
    in_query = taken[:, None] & (dim < HEAD_DIM)[None, :]
    query_at = q + (stream * q_stream + head * q_head)[:, None] + dim[None, :]
    query = tl.load(query_at, mask=in_query, other=0.0).to(keys.dtype.element_ty)
    kept = prefix * pool_prefix + kv_head * pool_head
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = at < end
        place = kept + at[:, None] * pool_position + dim[None, :]
        in_pool = seen[:, None] & (dim < HEAD_DIM)[None, :]
        k = tl.load(keys + place, mask=in_pool, other=0.0)
        v = tl.load(values + place, mask=in_pool, other=0.0)
        peak, weight, mixed = attend_block(query, k, v, seen, scale, peak, weight, mixed, WIDE)
    part = (stream * (KV_HEADS * GROUP) + head) * num_parts + split
    tl.store(peaks_out + part, peak, mask=taken)
    tl.store(weights_out + part, weight, mask=taken)
    tl.store(mixed_out + part[:, None] * HEAD_DIM + dim[None, :], mixed, mask=in_query)
