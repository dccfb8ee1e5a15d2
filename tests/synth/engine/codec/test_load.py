"""Test that a half is built from its own weights only, and that loaded halves are shared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from synth.engine.codec.files.convert import convert_codec
from synth.engine.codec.files.load import CodecCache, load_decoder, load_encoder
from synth.engine.errors import CheckpointError, InvalidSpecError
from tests.synth.engine.codec.conftest import State

WriteCodec = Callable[..., Path]


def test_a_half_does_not_read_what_the_other_needs(state: State, write_codec: WriteCodec) -> None:
    # A value that is not finite is an error once it is read.
    for name in ("decoder.model.0.conv.bias", "quantizer.upsample.0.1.gamma"):
        state[name] = torch.full_like(state[name], torch.nan)
    checkpoint = write_codec(state)

    load_encoder(checkpoint, "cpu")

    with pytest.raises(CheckpointError, match="not finite"):
        load_decoder(checkpoint, "cpu")


def test_loaded_weights_have_the_wanted_dtype_and_no_gradient(checkpoint: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for half in (
            load_encoder(checkpoint, "cpu", dtype),
            load_decoder(checkpoint, "cpu", dtype),
        ):
            assert half.dtype is dtype
            assert half.device == torch.device("cpu")
            assert not half.training
            assert all(p.dtype is dtype and not p.requires_grad for p in half.parameters())


def test_a_dtype_that_the_codec_does_not_run_in_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidSpecError, match=r"torch\.float16"):
        load_encoder(checkpoint, "cpu", torch.float16)


def test_a_loaded_half_does_not_depend_on_its_file(checkpoint: Path) -> None:
    decoder = load_decoder(checkpoint, "cpu")
    codes = torch.ones(4, 2, dtype=torch.int64)
    before = decoder.decode([codes])[0]

    path = checkpoint / "codec.pth"
    path.write_bytes(bytes(path.stat().st_size))  # in place, under the mapped pages

    assert torch.equal(decoder.decode([codes])[0], before)


def test_a_converted_codec_gives_the_same_audio_and_codes(checkpoint: Path) -> None:
    codes, wave = torch.ones(4, 2, dtype=torch.int64), torch.randn(5000) * 0.1
    audio = load_decoder(checkpoint, "cpu").decode([codes])[0]
    found = load_encoder(checkpoint, "cpu").encode([wave])[0]

    convert_codec(checkpoint)

    assert torch.equal(load_decoder(checkpoint, "cpu").decode([codes])[0], audio)
    assert torch.equal(load_encoder(checkpoint, "cpu").encode([wave])[0], found)


def test_the_cache_gives_one_half_for_one_content_and_dtype(
    checkpoint: Path, state: State, write_codec: WriteCodec
) -> None:
    cache = CodecCache()
    encoder = cache.encoder(checkpoint, "cpu")

    assert cache.encoder(checkpoint, torch.device("cpu")) is encoder
    assert cache.encoder(write_codec(state, "copy"), "cpu") is encoder
    assert cache.encoder(checkpoint, "cpu", torch.bfloat16) is not encoder
    assert cache.decoder(checkpoint, "cpu") is cache.decoder(checkpoint, "cpu")


def test_a_checkpoint_swapped_in_place_is_loaded_anew(
    checkpoint: Path, state: State, write_codec: WriteCodec
) -> None:
    cache = CodecCache()
    decoder = cache.decoder(checkpoint, "cpu")

    name = "decoder.model.5.alpha"
    write_codec(state | {name: state[name] + 1})

    assert cache.decoder(checkpoint, "cpu") is not decoder


def test_the_least_recently_used_half_leaves_a_full_cache(checkpoint: Path) -> None:
    cache = CodecCache(max_halves=2)
    encoder, decoder = cache.encoder(checkpoint, "cpu"), cache.decoder(checkpoint, "cpu")
    cache.encoder(checkpoint, "cpu")

    cache.encoder(checkpoint, "cpu", torch.bfloat16)

    assert cache.encoder(checkpoint, "cpu") is encoder
    assert cache.decoder(checkpoint, "cpu") is not decoder


def test_many_threads_get_the_same_half(checkpoint: Path) -> None:
    cache, found = CodecCache(), []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(cache.decoder(checkpoint, "cpu"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(half) for half in found}) == 1 and len(found) == 8


def test_clearing_lets_go_of_all_halves(checkpoint: Path) -> None:
    cache = CodecCache()
    encoder = cache.encoder(checkpoint, "cpu")

    cache.clear()

    assert cache.encoder(checkpoint, "cpu") is not encoder
