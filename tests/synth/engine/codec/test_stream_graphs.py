"""Test recorded chunks through a stand-in that runs the recorded work on the same tensors.

Every replay finds its output and everything that no stream was put into poisoned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.layers import MAX_KEPT_POSITIONS
from synth.engine.codec.streams import (
    MOST_FRAMES,
    WARM_UP_RUNS,
    ChunkSchedule,
    CodecStream,
    CudaCapture,
    StreamGraphs,
    Work,
    decode_streams,
    graph_bytes,
)
from tests.synth.engine.codec.conftest import (
    check_streams,
    decode_rounds,
    keep_eager,
    random_codes,
    whole,
)

SIZES = ChunkSchedule(first=1, largest=8).distinct_sizes()


class Recording:
    """Stand in for a device's capture: note each replay, and poison what it is to write."""

    def __init__(self, decoder: CodecDecoder) -> None:
        self.replays: list[tuple[int, int]] = []
        self.graphs = StreamGraphs(decoder, SIZES)
        self.graphs.record(keep_eager)
        for shape, recorded in self.graphs._recorded.items():
            recorded.replay = self._poisoned(shape, recorded.wave, recorded.replay)

    def _poisoned(self, shape: tuple[int, int], wave: Tensor, work: Work) -> Work:
        def replay() -> None:
            self.replays.append(shape)
            wave.fill_(torch.nan)
            work()

        return replay

    def poison_state(self) -> None:
        """Leave nothing of what earlier replays left in the recordings' own state."""
        with torch.inference_mode():
            self.graphs._rows.fill_(torch.nan)
            self.graphs._frames.fill_(MAX_KEPT_POSITIONS)  # the table has no such row


@pytest.fixture(scope="module")
def recording(golden_decoder: CodecDecoder) -> Recording:
    return Recording(golden_decoder)


def replayed(
    recording: Recording, codes: Sequence[Tensor], rounds: Sequence[Sequence[int]]
) -> tuple[list[Tensor], list[CodecStream], list[tuple[int, int]]]:
    recording.replays.clear()
    found, streams = decode_rounds(
        recording.graphs.decoder,
        codes,
        rounds,
        recording.graphs,
        before_each=recording.poison_state,
    )
    return found, streams, list(recording.replays)


def test_shapes_keep_to_the_most_frames(golden_decoder: CodecDecoder, recording: Recording) -> None:
    graphs, sizes = recording.graphs, (1, 2, 4, 8)
    assert graphs.shapes == [(n, b) for n in sizes for b in sizes if n * b <= MOST_FRAMES]
    held = graphs._rows.nbytes + graphs._rope.untyped_storage().nbytes()
    for frame_bytes in (0, 10):  # the memory of recordings is known from sizes alone
        found = graph_bytes(golden_decoder.config, torch.float32, frame_bytes)
        assert found == held + frame_bytes * MOST_FRAMES


@pytest.mark.parametrize("streams", [1, 2, 4, 8])
def test_a_replay_of_all_its_streams_is_the_eager_pass_to_the_last_bit(
    golden_decoder: CodecDecoder, recording: Recording, streams: int
) -> None:
    codes = [random_codes(golden_decoder.config, 31, seed) for seed in range(streams)]
    rounds = [[size] * streams for size in (1, 2, 4, 8, 8, 8)]
    found, after, replays = replayed(recording, codes, rounds)
    expected, before = decode_rounds(golden_decoder, codes, rounds)
    assert replays == [(lengths[0], streams) for lengths in rounds]
    assert all(torch.equal(*waves) for waves in zip(found, expected, strict=True))
    for ours, theirs in zip(after, before, strict=True):
        assert torch.equal(ours._state.rows, theirs._state.rows)
        assert torch.equal(ours._state.frames, theirs._state.frames)
        assert ours.num_frames == theirs.num_frames == 31


def test_streams_at_different_places_share_replays_and_leave_the_rows_that_are_free(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    codes = [random_codes(golden_decoder.config, 60, seed) for seed in range(3)]
    rounds = [(1, 4, 0), (2, 8, 1), (4, 4, 4), (8, 8, 8), (0, 8, 8), (8, 0, 8)]
    found, streams, replays = replayed(recording, codes, rounds)
    assert (4, 4) in replays and (8, 2) in replays
    check_streams(found, streams, codes)


@pytest.mark.parametrize(
    ("streams", "length", "replays"),
    [
        (11, 4, [(4, 8), (4, 4)]),  # more streams than a replay takes
        (2, 13, [(8, 2), (4, 2), (1, 2)]),  # a last chunk of any length
        (2, 3, [(2, 2), (1, 2)]),
        (2, 48, [(8, 2)] * 6),
        (1, 70, []),  # no recording fits
    ],
)
def test_streams_and_frames_go_in_the_recordings_that_take_them(
    golden_decoder: CodecDecoder,
    recording: Recording,
    streams: int,
    length: int,
    replays: list[tuple[int, int]],
) -> None:
    codes = [random_codes(golden_decoder.config, length, seed) for seed in range(streams)]
    found, after, seen = replayed(recording, codes, [[length] * streams])
    assert seen == replays
    check_streams(found, after, codes)


def test_a_stream_longer_than_the_kept_positions_goes_on_eagerly(
    golden_decoder: CodecDecoder, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve minutes are too long for a test: the bound is put at eight frames."""
    monkeypatch.setattr("synth.engine.codec.streams.MAX_KEPT_POSITIONS", 8)
    monkeypatch.setattr("synth.engine.codec.layers.MAX_KEPT_POSITIONS", 8)
    codes = [random_codes(golden_decoder.config, 12)]
    found, streams, replays = replayed(recording, codes, [[4], [4], [4]])
    assert replays == [(4, 1), (4, 1)]
    check_streams(found, streams, codes)


def test_a_replay_that_fails_leaves_every_stream_where_it_was(
    golden_decoder: CodecDecoder, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, stream = random_codes(golden_decoder.config, 8), CodecStream(golden_decoder)
    (first,) = decode_streams([stream], [codes[:, :4]], graphs=recording.graphs)
    kept = first.clone()
    recorded = recording.graphs._recorded[4, 1]
    work = recorded.replay

    def fail_behind() -> None:
        work()
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(recorded, "replay", fail_behind)
    with pytest.raises(torch.OutOfMemoryError):
        decode_streams([stream], [codes[:, 4:]], graphs=recording.graphs)
    monkeypatch.undo()

    assert stream.num_frames == 4
    (second,) = decode_streams([stream], [codes[:, 4:]], graphs=recording.graphs)
    assert torch.equal(first, kept)  # what a caller got does not change with the next replay
    check_streams([torch.cat([first, second])], [stream], [codes])


def test_shapes_that_find_no_memory_are_left_out_and_the_others_recorded(
    golden_decoder: CodecDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Work] = []

    def capture(work: Work) -> Work:
        asked.append(work)
        if len(asked) in (1, 4):  # the largest comes first: 4 x 8, and 4 x 2 frames
            raise torch.OutOfMemoryError("no memory")
        return keep_eager(work)

    graphs = StreamGraphs(golden_decoder, (2, 4))
    graphs.record(capture)

    left_out = {(4, 8), (4, 2)}
    assert graphs.shapes == [(n, b) for n in (2, 4) for b in (1, 2, 4, 8) if (n, b) not in left_out]
    assert "no memory for a graph of 8 streams by 4 frames" in caplog.text
    codes = [random_codes(golden_decoder.config, 4, seed) for seed in range(8)]
    found, streams = decode_rounds(golden_decoder, codes, [[4] * 8], graphs)
    check_streams(found, streams, codes)


@pytest.mark.gpu
def test_a_cuda_graph_gives_the_eager_samples(golden_decoder: CodecDecoder) -> None:
    from synth.engine.codec.load import load_decoder
    from tests.synth.engine.conftest import GOLDEN

    device = torch.device("cuda")
    decoder = load_decoder(GOLDEN / "tiny-s2", device)
    codes = [random_codes(decoder.config, 31, seed).to(device) for seed in range(3)]
    rounds = [[size] * 3 for size in (1, 2, 4, 8, 8, 8)]
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]  # torch's
        graphs = StreamGraphs(decoder, SIZES)
        graphs.record(CudaCapture(device))
        found, _ = decode_rounds(decoder, codes, rounds, graphs)
        torch.cuda.synchronize()

    for audio, matrix in zip(found, codes, strict=True):
        expected = whole(golden_decoder, matrix.cpu())
        torch.testing.assert_close(audio.cpu(), expected, atol=1e-3, rtol=0)


class FakeGraph:
    """Note what is asked, and fail at the end where something failed before, as CUDA does."""

    asked: list[object]  # of all graphs

    def capture_begin(self, **options: Any) -> None:
        self.asked.append(("begin", options["pool"], options["capture_error_mode"]))

    def capture_end(self) -> None:
        self.asked.append("end")
        if "failed" in self.asked:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.asked.append("replay")


class FakeStream:
    def synchronize(self) -> None:
        FakeGraph.asked.append("synchronize")


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> CudaCapture:
    handles: Iterator[tuple[int, int]] = ((0, number) for number in range(9))
    FakeGraph.asked = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    return CudaCapture(torch.device("cuda:0"))


def test_work_is_warmed_up_recorded_in_one_pool_and_replayed(capture: CudaCapture) -> None:
    recorded = [("begin", (0, 0), "thread_local"), "work", "end", "replay"]  # all from one pool
    for _ in range(3):
        FakeGraph.asked.clear()
        capture(lambda: FakeGraph.asked.append("work"))()
        assert FakeGraph.asked == ["work"] * WARM_UP_RUNS + ["synchronize", *recorded]


def test_an_error_of_the_work_goes_on_and_the_pool_is_not_used_again(capture: CudaCapture) -> None:
    runs: list[int] = []

    def fail() -> None:
        runs.append(1)
        if len(runs) > WARM_UP_RUNS:
            FakeGraph.asked.append("failed")
            raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        capture(fail)

    assert FakeGraph.asked[-1] == "end"
    FakeGraph.asked.clear()
    capture(lambda: None)
    assert ("begin", (0, 1), "thread_local") in FakeGraph.asked
