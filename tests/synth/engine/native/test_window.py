"""Test window: what queries see, alone, in streams and beside one another."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.codec.config import HEAD_DIM
from synth.engine.codec.layers import ROPE_ROWS, rope_at
from synth.engine.codec.stages import windowed_attention
from synth.engine.native.convolution import (
    Ahead,
    NativeCodebooks,
    NativeNorm,
    NativeTaps,
    NativeWindow,
    Then,
    convolve,
)
from tests.synth.engine.native.conftest import Convolution, close, numbers, split

pytestmark = [pytest.mark.compiler, pytest.mark.usefixtures("library")]

WIDTH = 24
LENGTHS = [1, 2, 15, 16, 17, 127, 128, 129, 300]
EPS = 1e-5


def rope_of(length: int) -> Tensor:
    return ROPE_ROWS.rows(0, length, torch.device("cpu")).unsqueeze(0)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x.mT, (x.shape[1],), weight.double(), EPS).mT


class Layer:
    """Hold an attention and a feed-forward, and what they are to give."""

    def __init__(self, heads: int, size: int, seed: int = 0) -> None:
        self.heads, self.size = heads, size
        inner = heads * HEAD_DIM
        self.qkv = numbers(3 * inner, WIDTH, 1, seed=seed) * WIDTH**-0.5
        self.out = numbers(WIDTH, inner, 1, seed=seed + 1) * inner**-0.5
        self.both = numbers(56, WIDTH, 1, seed=seed + 2) * WIDTH**-0.5
        self.down = numbers(WIDTH, 28, 1, seed=seed + 3) * 28**-0.5
        self.norms = [numbers(WIDTH, seed=seed + 4) + 1, numbers(WIDTH, seed=seed + 5) + 1]
        first, second = (NativeNorm(weight, EPS) for weight in self.norms)
        window, down = NativeWindow(heads, size), NativeTaps(self.down)
        self.attention = [
            Convolution(NativeTaps(self.qkv), first=window, norm=first, then=Then.ROTATED),
            Convolution(NativeTaps(self.out), first=window, adds=2),
        ]
        self.feed = Convolution(
            NativeTaps(self.both), norm=second, then=Then.GATES, narrow=down, adds=1
        )

    def __call__(self, x: Tensor) -> Tensor:
        return convolve(self.attention, [x], rope=rope_of(x.shape[2]))[0]

    def attended(self, x: Tensor) -> Tensor:
        """Return what the attention is to give for x [B, WIDTH, T], in double precision."""
        heads = F.conv1d(rms(x, self.norms[0]), self.qkv.double())
        heads = heads.view(len(x), 3, self.heads, HEAD_DIM, -1).transpose(3, 4)
        q, k, v = heads.unbind(1)
        seen = windowed_attention(rotated(q), rotated(k), v, self.size)
        return x + F.conv1d(seen.transpose(2, 3).flatten(1, 2), self.out.double())

    def expected(self, x: Tensor) -> Tensor:
        """Return what both are to give for x [B, WIDTH, T], in double precision."""
        x = self.attended(x)
        gates, other = F.conv1d(rms(x, self.norms[1]), self.both.double()).chunk(2, dim=1)
        return x + F.conv1d(F.silu(gates) * other, self.down.double())


def rotated(x: Tensor) -> Tensor:
    """Rotate x [B, H, T, HEAD_DIM] as positions from 0 on are."""
    pairs = torch.view_as_complex(x.contiguous().view(*x.shape[:-1], -1, 2))
    turns = torch.view_as_complex(rope_of(x.shape[2]).double())
    return torch.view_as_real(pairs * turns).flatten(-2)


class Streams:
    """Hold what streams carry from chunk to chunk of a layer's attention, at first garbage."""

    def __init__(self, layer: Layer, count: int) -> None:
        self.layer = layer
        kept = 2 * layer.heads * (layer.size - 1) * HEAD_DIM
        self.room = torch.full((count, 10 + kept), float("nan"))  # rows apart, as those of streams
        self.frames = torch.zeros(count, dtype=torch.int64)

    def advance(self, x: Tensor, start: int = 0) -> Tensor:
        """Map the next columns [B, WIDTH, n] of the streams from `start` on."""
        count, _, length = x.shape
        frames = self.frames[start : start + count]
        rope = rope_at(rope_of(int(frames.max()) + length)[0], frames, length)
        place = self.room[start, 10:].data_ptr()
        ahead = Ahead([None, place], self.room.stride(0), frames)
        (y,) = convolve(self.layer.attention, [x], ahead, rope=rope)
        frames += length
        return y


@pytest.mark.parametrize("size", [1, 20, 128])
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_a_window_shows_what_pytorch_shows(heads: int, size: int) -> None:
    layer = Layer(heads, size)
    for x in [numbers(2, WIDTH, length, seed=9) for length in LENGTHS]:
        close(layer(x), layer.attended(x.double()))


@pytest.mark.parametrize(("size", "length"), [(20, 1), (20, 129), (20, 300), (128, 17), (128, 300)])
def test_layers_behind_a_look_up_are_those_of_pytorch(size: int, length: int) -> None:
    layers = [Layer(2, size, seed=20 * place) for place in range(3)]
    tables = [numbers(count, 8, seed=count) for count in (50, 30)]
    projection = numbers(WIDTH, 16, 1, seed=7) * 0.25
    codes = torch.randint(0, 30, (2, 2, length), generator=torch.Generator().manual_seed(0))
    steps = [Convolution(NativeTaps(projection), first=NativeCodebooks(tables))]
    for layer in layers:
        steps += [*layer.attention, layer.feed]

    (found,) = convolve(steps, [codes], rope=rope_of(length))

    looked_up = [F.embedding(codes[:, row], table) for row, table in enumerate(tables)]
    x = F.conv1d(torch.cat(looked_up, dim=2).mT.double(), projection.double())
    for layer in layers:
        x = layer.expected(x)
    torch.testing.assert_close(found.double(), x, atol=1e-4, rtol=1e-5)


CUTS = [[1] * 301, [7, 60, 63, 171], [1, 130, 2, 40, 128], [300, 1], [16] * 18 + [13],
        [127, 2, 172]]  # fmt: skip


@pytest.mark.parametrize(("heads", "size"), [(2, 1), (1, 2), (2, 20), (1, 128), (2, 128)])
def test_chunks_are_the_whole_in_every_bit(heads: int, size: int) -> None:
    layer, x = Layer(heads, size), numbers(2, WIDTH, 301, seed=9)
    whole = layer(x)
    for sizes in CUTS:
        streams = Streams(layer, 2)
        pieces = [streams.advance(piece) for piece in split(x, sizes)]
        assert torch.equal(torch.cat(pieces, dim=2), whole), sizes
        assert bool(streams.room[:, :10].isnan().all())


@pytest.mark.parametrize("size", [20, 128])
def test_streams_at_different_places_share_a_call(size: int) -> None:
    layer, x = Layer(2, size), numbers(3, WIDTH, 220, seed=9)
    streams = Streams(layer, 3)
    places = [0, 0, 0]
    pieces: list[list[Tensor]] = [[], [], []]

    # Streams from which one on, how many of them, and their columns.
    for start, count, length in [(1, 1, 37), (0, 1, 150), (0, 3, 1), (1, 2, 13), (0, 3, 40)]:
        rows = range(start, start + count)
        chunk = torch.stack([x[row, :, places[row] : places[row] + length] for row in rows])
        for row, y in zip(rows, streams.advance(chunk, start), strict=True):
            pieces[row].append(y)
            places[row] += length

    assert places == streams.frames.tolist() == [191, 91, 54]
    for row, place in enumerate(places):
        whole = layer(x[row : row + 1, :, :place].contiguous())
        assert torch.equal(torch.cat(pieces[row], dim=1), whole[0])


def test_inputs_of_different_length_are_each_what_they_are_alone() -> None:
    layer = Layer(2, 20)
    shapes = [(1, 300), (2, 1), (1, 17), (3, 64), (1, 2)]
    inputs = [numbers(batch, WIDTH, length, seed=length) for batch, length in shapes]
    together = convolve(layer.attention, inputs, rope=rope_of(300))
    for x, found in zip(inputs, together, strict=True):
        assert torch.equal(found, layer(x))
        for row, alone in zip(found, torch.split(x, 1), strict=True):
            assert torch.equal(row, layer(alone)[0])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("size", [20, 128])
def test_threads_change_no_bit(size: int) -> None:
    layer, x = Layer(2, size), numbers(2, WIDTH, 3000, seed=9)
    found = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append(layer(x))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
