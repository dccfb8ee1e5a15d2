"""Test the codec's thread: whose error it is, passes, pauses, and memory that runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from synth.contract import FinishReason, SegmentAudio
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import uses_kernels
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.device import DeviceLane, HostCopy
from synth.engine.errors import DeviceOutOfMemoryError, EngineClosedError, InvalidSpecError
from synth.engine.loading.loaded_models import load_models
from synth.engine.slots.codec_thread import CodecPasses, CodecThread
from synth.engine.slots.requests import FinishedCodes, LiveAudio, LiveChunk
from tests.synth.engine.codec.conftest import keep_eager, watched_passes
from tests.synth.engine.engine_runs import CONFIG, wait_until


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return load_models(CONFIG).decoder


@pytest.fixture
def codec(decoder: CodecDecoder) -> Iterator[CodecThread]:
    thread = codec_thread(decoder)
    yield thread
    thread.close()


def codec_thread(decoder: CodecDecoder, *, is_strict: bool = False) -> CodecThread:
    thread = CodecThread(
        decoder,
        pass_frames=256,
        most_waiting=100,
        is_strict=is_strict,
        num_threads=0,
        on_progress=lambda: None,
    )
    thread.start()
    return thread


def finished(num_frames: int, *, seed: int = 0, priority: int = 0) -> FinishedCodes:
    generator = torch.Generator().manual_seed(seed)
    return FinishedCodes(
        codes=torch.randint(0, 256, (10, num_frames), generator=generator, dtype=torch.int32),
        made=None,
        reason=FinishReason.END,
        future=Future(),
        priority=priority,
        queue_seconds=0.0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
    )


def answers(codec: CodecThread, items: Sequence[FinishedCodes]) -> list[SegmentAudio]:
    with codec.paused():  # so that they meet in one pass
        for item in items:
            codec.finish(item)
    return [item.future.result(60) for item in items]


def test_segments_of_one_pass_sound_as_each_alone(
    codec: CodecThread, decoder: CodecDecoder
) -> None:
    items = [finished(n, seed=n) for n in (40, 38, 33, 7, 0)]

    for item, answer in zip(items, answers(codec, items), strict=True):
        (alone,) = decoder.decode([item.codes])
        assert answer.audio.shape == (item.num_frames * 2048,)
        assert np.allclose(answer.audio, alone.numpy(), atol=1e-4)
        assert answer.audio.base is None  # and not a piece of the whole pass
        assert np.array_equal(answer.codes, item.codes.numpy())


def test_an_error_is_that_of_its_own_segment(codec: CodecThread) -> None:
    good, bad = [finished(20, seed=n) for n in range(3)], finished(20)
    bad.codes[3, 4] = -1

    with codec.paused():
        for item in (good[0], bad, *good[1:]):
            codec.finish(item)

    with pytest.raises(InvalidSpecError):
        bad.future.result(60)
    assert all(item.future.result(60).codes.shape[1] == 20 for item in good)


def test_an_error_is_that_of_its_own_stream(codec: CodecThread) -> None:
    chunks = []
    for seed in range(2):
        item = finished(5, seed=seed)
        live = LiveAudio(ChunkSchedule())
        chunks.append(LiveChunk(live, item.future, item.codes, None, item))
    chunks[0].codes[0, 0] = -1

    with codec._changed:  # both wait before the thread looks
        for chunk in chunks:
            codec.feed(chunk)

    with pytest.raises(InvalidSpecError):
        chunks[0].future.result(60)
    assert chunks[1].future.result(60).audio.shape == (5 * 2048,)


def streamed(codec: CodecThread, sizes: Sequence[int], seeds: Sequence[int]) -> list[SegmentAudio]:
    """Return what comes of streams that hand their chunks on side by side."""
    items = [finished(sum(sizes), seed=seed) for seed in seeds]
    lives = [LiveAudio(ChunkSchedule()) for _ in items]
    start = 0
    for size in sizes:
        start += size
        with codec._changed:  # the chunks of all streams meet in one pass
            for item, live in zip(items, lives, strict=True):
                last = item if start == sum(sizes) else None
                codes = item.codes[:, start - size : start]
                codec.feed(LiveChunk(live, item.future, codes, None, last))
    return [item.future.result(60) for item in items]


def test_recorded_streams_sound_as_those_decoded_eagerly(
    codec: CodecThread, decoder: CodecDecoder
) -> None:
    recorded = CodecThread(
        decoder,
        pass_frames=256,
        most_waiting=100,
        is_strict=False,
        num_threads=0,
        on_progress=lambda: None,
    )
    recorded.record_streams(ChunkSchedule(first=1, largest=8), capture=keep_eager)
    recorded.start()
    try:
        found = streamed(recorded, [1, 2, 4, 8, 8, 3], seeds=[1, 2, 3])
    finally:
        recorded.close()

    assert recorded.describe()["codec_graphs"] == 16
    expected = streamed(codec, [1, 2, 4, 8, 8, 3], seeds=[1, 2, 3])
    assert codec.describe()["codec_graphs"] == 0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.audio.shape == (26 * 2048,)
        assert np.allclose(ours.audio, theirs.audio, atol=1e-4)
        assert np.array_equal(ours.codes, theirs.codes)


def test_a_cpu_records_no_streams_by_itself(decoder: CodecDecoder) -> None:
    codec = codec_thread(decoder)
    codec.record_streams(ChunkSchedule())
    codec.close()

    assert codec.describe() == {
        "codec_kernels": uses_kernels(decoder),
        "codec_graphs": 0,
        "codec_graph_seconds": 0.0,
    }


def test_memory_that_runs_out_behind_the_decoder_moves_no_stream_twice(
    codec: CodecThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    (expected,) = streamed(codec, [4, 4, 4], seeds=[5])
    real = HostCopy.take
    failed: list[int] = []

    def fail_twice(self: HostCopy, tensors: Sequence[torch.Tensor]) -> object:
        if len(failed) < 2:
            failed.append(len(tensors))
            raise torch.OutOfMemoryError("no memory")
        return real(self, tensors)

    monkeypatch.setattr(HostCopy, "take", fail_twice)

    (found,) = streamed(codec, [4, 4, 4], seeds=[5])

    assert len(failed) == 2
    assert np.array_equal(found.audio, expected.audio)


def test_a_pass_holds_the_most_urgent_class_and_similar_lengths(decoder: CodecDecoder) -> None:
    passes = CodecPasses(
        decoder, DeviceLane(decoder.device, is_urgent=False), pass_frames=100, is_strict=False
    )
    bulk, first = finished(30, priority=10), finished(30)
    similar, short, too_much = finished(28), finished(12), finished(33)

    chosen = passes.choose([bulk, first, short, similar, too_much], in_pieces=False)

    assert chosen == [first, similar, too_much]
    assert passes.choose([bulk, first, similar], in_pieces=True) == [first]


def test_a_strict_pass_holds_one_segment(decoder: CodecDecoder) -> None:
    lane = DeviceLane(decoder.device, is_urgent=False)
    passes = CodecPasses(decoder, lane, pass_frames=100, is_strict=True)
    one, other = finished(30), finished(30)

    assert passes.choose([one, other], in_pieces=False) == [one]


def test_strict_samples_do_not_depend_on_streams(decoder: CodecDecoder) -> None:
    codec = codec_thread(decoder, is_strict=True)
    try:
        (quiet,) = answers(codec, [finished(90, seed=3)])
        listener: Future[SegmentAudio] = Future()
        codec.watch([listener])
        (beside,) = answers(codec, [finished(90, seed=3)])
    finally:
        codec.close()

    assert np.array_equal(quiet.audio, beside.audio)


def test_while_paused_streams_go_on_and_segments_wait(codec: CodecThread) -> None:
    item, streamed = finished(30), finished(4)
    live = LiveAudio(ChunkSchedule())
    with codec.paused():
        codec.finish(item)
        codec.feed(LiveChunk(live, streamed.future, streamed.codes, None, streamed))
        assert streamed.future.result(60).audio.shape == (4 * 2048,)
        assert codec.waiting_frames == 30

    assert item.future.result(60).codes.shape[1] == 30


def test_it_says_when_too_much_waits_for_a_class(codec: CodecThread) -> None:
    with codec.paused():
        codec.finish(finished(90, priority=10))
        codec.finish(finished(20, priority=0))

        assert codec.is_behind(10)
        assert not codec.is_behind(0)


def test_a_cancelled_segment_is_not_decoded(codec: CodecThread, decoder: CodecDecoder) -> None:
    with watched_passes(decoder) as passes:
        cancelled = finished(30)
        with codec.paused():
            codec.finish(cancelled)
            assert cancelled.future.cancel()
        answers(codec, [finished(10)])

    assert passes == [(1, 10)]


def test_memory_that_runs_out_makes_passes_smaller(
    codec: CodecThread, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [finished(40, seed=n) for n in range(4)]
    expected = [decoder.decode([item.codes])[0].numpy() for item in items]
    real, sizes = CodecDecoder.decode, []

    def limited(
        self: CodecDecoder, codes: Sequence[torch.Tensor], *, max_batch_frames: int
    ) -> list[torch.Tensor]:
        sizes.append(max_batch_frames)
        if max_batch_frames > 32 or len(codes) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(self, codes, max_batch_frames=max_batch_frames)

    monkeypatch.setattr(CodecDecoder, "decode", limited)

    found = [answer.audio for answer in answers(codec, items)]

    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(found, expected, strict=True))
    assert sizes[0] == 256
    assert min(sizes) == 32


def test_memory_that_is_not_enough_for_one_segment_is_its_error(
    codec: CodecThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(CodecDecoder, "decode", never)
        failed = finished(20)
        codec.finish(failed)
        with pytest.raises(DeviceOutOfMemoryError):
            failed.future.result(60)

    assert answers(codec, [finished(20)])[0].codes.shape[1] == 20


def test_its_number_of_torch_threads_is_its_own(decoder: CodecDecoder) -> None:
    before, seen = torch.get_num_threads(), []
    codec = CodecThread(
        decoder,
        pass_frames=64,
        most_waiting=64,
        is_strict=False,
        num_threads=before + 1,
        on_progress=lambda: seen.append(torch.get_num_threads()),
    )
    codec.start()
    answers(codec, [finished(3)])
    wait_until(lambda: bool(seen))
    codec.close()

    assert seen == [before + 1]
    assert torch.get_num_threads() == before


def test_closing_ends_what_waits(decoder: CodecDecoder) -> None:
    codec = codec_thread(decoder)
    waiting = finished(10)
    with codec.paused():
        codec.finish(waiting)
        codec.close()

    with pytest.raises(EngineClosedError):
        waiting.future.result(60)
