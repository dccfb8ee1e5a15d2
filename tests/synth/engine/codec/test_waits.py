"""Test where the codec's host would wait for a device: by the operations that bring numbers back.

They are seen on a CPU as well, where nothing waits; copies between devices are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from synth.engine.codec.halves import CodecDecoder, CodecEncoder, encode_reference
from synth.engine.codec.resample import ResamplerChoice
from synth.engine.codec.streams import CodecStream, decode_streams
from tests.synth.engine.codec.conftest import watched_passes
from tests.synth.engine.codec.test_stream import random_codes

WAITING = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "equal"}


class _Operations(TorchDispatchMode):
    """Note the name of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> list[str]:
    """Return the names of the operations that some work does, in their order."""
    work()  # the first time tables and filters are made
    seen = _Operations()
    with seen:
        work()
    return seen.names


def asked(decoder: CodecDecoder) -> int:
    """Return how often a check of codes asks PyTorch: not where compiled code needs the host."""
    return 1 if decoder.compiled is None else 0


def test_a_clip_is_encoded_without_waiting_on_the_way(golden_encoder: CodecEncoder) -> None:
    # Of 4 s, which are two pieces.
    wave = (np.random.default_rng(0).standard_normal(4 * 48_000) * 0.1).astype(np.float32)

    names = operations(
        lambda: encode_reference(golden_encoder, wave, 48_000, ResamplerChoice.BUILTIN)
    )

    waits = [place for place, name in enumerate(names) if name in WAITING]
    convolutions = [place for place, name in enumerate(names) if "convolution" in name]
    between = [place for place in waits if convolutions[0] < place < convolutions[-1]]
    before = [place for place in waits if place < convolutions[0]]
    assert len(convolutions) > 40
    assert between == []
    assert len(before) == 1  # whether the clip is finite, asked where it came from
    assert len(waits) == 2


def test_a_batch_waits_once_before_it_is_decoded(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, n) for n in (9, 5, 30)]

    with watched_passes(golden_decoder) as passes:
        names = operations(lambda: golden_decoder.decode(codes, max_batch_frames=40))

    assert len([name for name in names if name in WAITING]) == asked(golden_decoder)
    assert len(passes) == 2 * 2  # two in each of two runs
    in_pytorch = 2 * 2 if golden_decoder.compiled is None else 0  # two in each of two passes
    assert len([name for name in names if name == "gelu"]) == in_pytorch


def test_chunks_of_streams_at_different_places_wait_once(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, n, seed) for seed, n in enumerate((20, 60))]

    streams = [CodecStream(golden_decoder) for _ in codes]
    streams[0].decode(codes[0][:, :3])

    names = operations(lambda: decode_streams(streams, [matrix[:, 3:11] for matrix in codes]))

    assert len([name for name in names if name in WAITING]) == asked(golden_decoder)
    if golden_decoder.compiled is None:  # which works on the host
        assert "lift_fresh" not in names  # a tensor made of the host's numbers


def test_a_chunk_behind_its_check_never_waits(golden_decoder: CodecDecoder) -> None:
    runner = golden_decoder
    state = runner.initial_state()
    codes: Tensor = random_codes(golden_decoder.config, 8)[None]

    def decode() -> None:
        with torch.inference_mode():
            runner.run(codes, state.copy(), 8)

    with watched_passes(golden_decoder) as passes:
        names = operations(decode)

    assert len(passes) == 2  # one in each of two runs
    assert len(names) > 100 or golden_decoder.compiled is not None
    assert not WAITING & set(names)
