"""Test the codec's thread: whose error it is, passes, pauses, and memory that runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from synth.contract import FinishReason, Sampling, SegmentAudio
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import uses_kernels
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.device import DeviceLane, HostCopy
from synth.engine.errors import DeviceOutOfMemoryError, EngineClosedError, InvalidSpecError
from synth.engine.slots.codec_thread import CodecPasses, CodecThread
from synth.engine.slots.requests import LiveAudio, MadeCodes, SlotRequest
from tests.synth.engine.codec.conftest import keep_eager, watched_passes
from tests.synth.engine.engine_runs import CONFIG, HOP, models_of, wait_until

EMPTY = torch.zeros(11, 0)


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return models_of(CONFIG).decoder


@pytest.fixture
def codec(decoder: CodecDecoder) -> Iterator[CodecThread]:
    thread = codec_thread(decoder)
    thread.start()
    yield thread
    thread.close()


def codec_thread(
    decoder: CodecDecoder,
    *,
    is_strict: bool = False,
    num_threads: int = 0,
    on_progress: Callable[[], None] = lambda: None,
) -> CodecThread:
    return CodecThread(
        decoder,
        pass_frames=256,
        most_waiting=100,
        is_strict=is_strict,
        num_threads=num_threads,
        on_progress=on_progress,
    )


def finished(
    num_frames: int, *, seed: int = 0, priority: int = 0, is_heard: bool = False
) -> MadeCodes:
    """Return a segment's codes, or a stream's that come all at once."""
    live = LiveAudio(ChunkSchedule()) if is_heard else None
    request = SlotRequest(EMPTY, EMPTY, "", Sampling(), priority, live=live)
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (10, num_frames), generator=generator, dtype=torch.int32)
    return MadeCodes(request, codes, None, FinishReason.END)


def answers(codec: CodecThread, items: Sequence[MadeCodes]) -> list[SegmentAudio]:
    with codec.paused():  # so that they meet in one pass
        for item in items:
            codec.feed(item)
    return [answer_to(item) for item in items]


def answer_to(item: MadeCodes) -> SegmentAudio:
    return item.request.future.result(60)


def test_segments_of_one_pass_sound_as_each_alone(
    codec: CodecThread, decoder: CodecDecoder
) -> None:
    items = [finished(n, seed=n) for n in (40, 38, 33, 7, 0)]
    for item, answer in zip(items, answers(codec, items), strict=True):
        (alone,) = decoder.decode([item.codes])
        assert answer.audio.shape == (item.num_frames * HOP,)
        assert np.allclose(answer.audio, alone.numpy(), atol=1e-4)
        assert answer.audio.base is None  # and not a piece of the whole pass
        assert np.array_equal(answer.codes, item.codes.numpy())


def test_an_error_is_that_of_its_own_segment_or_stream(codec: CodecThread) -> None:
    for is_heard in (False, True):
        items = [finished(20, seed=n, is_heard=is_heard) for n in range(4)]
        items[1].codes[3, 4] = -1
        with codec._changed:  # all wait before the thread looks
            for item in items:
                codec.feed(item)

        with pytest.raises(InvalidSpecError):
            answer_to(items.pop(1))
        for item in items:
            assert answer_to(item).audio.shape == (20 * HOP,)


def streamed(codec: CodecThread, sizes: Sequence[int], seeds: Sequence[int]) -> list[SegmentAudio]:
    """Return what comes of streams that hand their chunks on side by side."""
    items = [finished(sum(sizes), seed=seed, is_heard=True) for seed in seeds]
    start = 0
    for size in sizes:
        with codec._changed:  # the chunks of all streams meet in one pass
            for item in items:
                chunk = MadeCodes(item.request, item.codes[:, start : start + size], None)
                last = MadeCodes(item.request, item.codes, None, item.reason, start)
                codec.feed(last if start + size == sum(sizes) else chunk)
        start += size
    return [answer_to(item) for item in items]


def test_recorded_streams_sound_as_those_decoded_eagerly(
    codec: CodecThread, decoder: CodecDecoder
) -> None:
    recorded = codec_thread(decoder)
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
        assert ours.audio.shape == (26 * HOP,)
        assert np.allclose(ours.audio, theirs.audio, atol=1e-4)
        assert np.array_equal(ours.codes, theirs.codes)


def test_only_the_last_chunk_of_a_stream_brings_codes_to_the_host(
    codec: CodecThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, copied = HostCopy.take, []

    def note(self: HostCopy, tensors: Sequence[torch.Tensor]) -> object:
        copied.append(sum(one.numel() for one in tensors if one.dtype is torch.int32))
        return real(self, tensors)

    monkeypatch.setattr(HostCopy, "take", note)
    (answer,) = streamed(codec, [1, 2, 4], seeds=[1])
    assert answer.codes.shape == (10, 7)
    assert copied == [0, 0, 10 * 7]


def test_a_cpu_records_no_streams_by_itself(decoder: CodecDecoder) -> None:
    codec = codec_thread(decoder)
    codec.record_streams(ChunkSchedule())
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
    lane = DeviceLane(decoder.device, is_urgent=False)
    passes, strict = (
        CodecPasses(decoder, lane, pass_frames=100, is_strict=strict) for strict in (False, True)
    )
    bulk, first = finished(30, priority=10), finished(30)
    similar, short, too_much = finished(28), finished(12), finished(33)

    chosen = passes.choose([bulk, first, short, similar, too_much], in_pieces=False)

    assert chosen == [first, similar, too_much]
    assert passes.choose([bulk, first, similar], in_pieces=True) == [first]
    assert strict.choose([first, finished(30)], in_pieces=False) == [first]


def test_strict_samples_do_not_depend_on_streams(decoder: CodecDecoder) -> None:
    codec = codec_thread(decoder, is_strict=True)
    codec.start()
    try:
        (quiet,) = answers(codec, [finished(90, seed=3)])
        codec.watch([Future()])
        (beside,) = answers(codec, [finished(90, seed=3)])
    finally:
        codec.close()
    assert np.array_equal(quiet.audio, beside.audio)


def test_while_paused_streams_go_on_and_segments_wait_and_are_counted(codec: CodecThread) -> None:
    item, stream = finished(90, priority=10), finished(4, is_heard=True)
    with codec.paused():
        for one in (item, stream):
            codec.feed(one)
        assert answer_to(stream).audio.shape == (4 * HOP,)
        assert codec.waiting_frames == 90
        codec.feed(finished(20, priority=0))
        assert (codec.is_behind(10), codec.is_behind(0)) == (True, False)
    assert answer_to(item).codes.shape[1] == 90


def test_the_thread_waits_again_behind_chunks_of_a_cancelled_stream(
    codec: CodecThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, waits = finished(5, is_heard=True), threading.Event()
    item.request.future.cancel()
    wait = codec._changed.wait

    def note_and_wait(timeout: float | None = None) -> bool:
        waits.set()
        return wait(timeout)

    with codec._changed:
        monkeypatch.setattr(codec._changed, "wait", note_and_wait)
        codec.feed(item)

    assert waits.wait(60), "it looks for work again and again"


def test_a_cancelled_segment_is_not_decoded(codec: CodecThread, decoder: CodecDecoder) -> None:
    with watched_passes(decoder) as passes:
        cancelled = finished(30)
        with codec.paused():
            codec.feed(cancelled)
            assert cancelled.request.future.cancel()
        answers(codec, [finished(10)])
    assert passes == [(1, 10)]


def test_memory_that_runs_out_makes_passes_smaller(
    codec: CodecThread, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [finished(40, seed=n) for n in range(4)]
    expected = [decoder.decode([item.codes])[0].numpy() for item in items]
    real, sizes = CodecDecoder.decode, []

    def limited(
        self: CodecDecoder, codes: Sequence[torch.Tensor], *, max_batch_frames: int, may_wait: bool
    ) -> list[torch.Tensor]:
        sizes.append(max_batch_frames)
        if max_batch_frames > 32 or len(codes) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(self, codes, max_batch_frames=max_batch_frames, may_wait=may_wait)

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
        codec.feed(failed)
        with pytest.raises(DeviceOutOfMemoryError):
            answer_to(failed)
    assert answers(codec, [finished(20)])[0].codes.shape[1] == 20


def test_its_number_of_torch_threads_is_its_own(decoder: CodecDecoder) -> None:
    before, seen = torch.get_num_threads(), []
    codec = codec_thread(
        decoder,
        num_threads=before + 1,
        on_progress=lambda: seen.append(torch.get_num_threads()),
    )
    codec.start()
    answers(codec, [finished(3)])
    wait_until(lambda: bool(seen))
    codec.close()

    assert (seen, torch.get_num_threads()) == ([before + 1], before)


def test_closing_ends_what_waits(decoder: CodecDecoder) -> None:
    codec, waiting = codec_thread(decoder), finished(10)
    codec.start()
    with codec.paused():
        codec.feed(waiting)
        codec.close()
    with pytest.raises(EngineClosedError):
        answer_to(waiting)
