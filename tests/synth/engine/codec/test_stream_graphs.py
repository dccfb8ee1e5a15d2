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
from synth.engine.codec.stages import MAX_KEPT_POSITIONS
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
from tests.synth.engine.codec.conftest import keep_eager
from tests.synth.engine.codec.test_stream import EXACT, random_codes, whole

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


def decode_rounds(
    decoder: CodecDecoder,
    codes: Sequence[Tensor],
    rounds: Sequence[Sequence[int]],
    recording: Recording | None = None,
) -> tuple[list[Tensor], list[CodecStream]]:
    """Return each stream's audio, in rounds of one chunk of each, and the streams."""
    streams = [CodecStream(decoder) for _ in codes]
    places, parts = [0] * len(codes), [[torch.empty(0)] for _ in codes]
    for lengths in rounds:
        if recording:
            recording.poison_state()
        ends = [place + length for place, length in zip(places, lengths, strict=True)]
        chunks = [c[:, a:b] for c, a, b in zip(codes, places, ends, strict=True)]
        graphs = recording.graphs if recording else None
        for part, wave in zip(parts, decode_streams(streams, chunks, graphs=graphs), strict=True):
            part.append(wave)
        places = ends
    return [torch.cat(part) for part in parts], streams


def test_shapes_keep_to_the_most_frames(recording: Recording) -> None:
    assert recording.graphs.shapes == [
        (n, b) for n in (1, 2, 4, 8) for b in (1, 2, 4, 8) if n * b <= MOST_FRAMES
    ]


@pytest.mark.parametrize("streams", [1, 2, 4, 8])
def test_a_replay_of_all_its_streams_is_the_eager_pass_to_the_last_bit(
    golden_decoder: CodecDecoder, recording: Recording, streams: int
) -> None:
    codes = [random_codes(golden_decoder.config, 31, seed) for seed in range(streams)]
    rounds = [[size] * streams for size in (1, 2, 4, 8, 8, 8)]
    recording.replays.clear()

    found, after = decode_rounds(golden_decoder, codes, rounds, recording)

    expected, before = decode_rounds(golden_decoder, codes, rounds)
    assert recording.replays == [(lengths[0], streams) for lengths in rounds]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    for ours_, theirs_ in zip(after, before, strict=True):
        assert torch.equal(ours_._state.rows, theirs_._state.rows)
        assert torch.equal(ours_._state.frames, theirs_._state.frames)
        assert ours_.num_frames == theirs_.num_frames == 31


def test_streams_at_different_places_share_replays_and_leave_the_rows_that_are_free(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    codes = [random_codes(golden_decoder.config, 60, seed) for seed in range(3)]
    rounds = [(1, 4, 0), (2, 8, 1), (4, 4, 4), (8, 8, 8), (0, 8, 8), (8, 0, 8)]
    recording.replays.clear()

    found, streams = decode_rounds(golden_decoder, codes, rounds, recording)

    assert (4, 4) in recording.replays and (8, 2) in recording.replays
    for audio, matrix, stream in zip(found, codes, streams, strict=True):
        assert audio.shape == (2048 * stream.num_frames,)
        expected = whole(golden_decoder, matrix[:, : stream.num_frames])
        torch.testing.assert_close(audio, expected, atol=EXACT, rtol=0)


def test_more_streams_than_a_replay_takes_go_in_several(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    codes = [random_codes(golden_decoder.config, 4, seed) for seed in range(11)]
    recording.replays.clear()

    found, _ = decode_rounds(golden_decoder, codes, [[4] * 11], recording)

    assert recording.replays == [(4, 8), (4, 4)]
    for audio, matrix in zip(found, codes, strict=True):
        torch.testing.assert_close(audio, whole(golden_decoder, matrix), atol=EXACT, rtol=0)


@pytest.mark.parametrize(("length", "pieces"), [(13, [8, 4, 1]), (3, [2, 1]), (48, [8] * 6)])
def test_a_last_chunk_of_any_length_goes_in_recorded_pieces(
    golden_decoder: CodecDecoder, recording: Recording, length: int, pieces: list[int]
) -> None:
    codes = [random_codes(golden_decoder.config, length, seed) for seed in range(2)]
    recording.replays.clear()

    found, _ = decode_rounds(golden_decoder, codes, [[length] * 2], recording)

    assert recording.replays == [(size, 2) for size in pieces]
    for audio, matrix in zip(found, codes, strict=True):
        torch.testing.assert_close(audio, whole(golden_decoder, matrix), atol=EXACT, rtol=0)


def test_what_no_recording_fits_is_decoded_eagerly(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    codes = [random_codes(golden_decoder.config, 70)]
    stream = CodecStream(golden_decoder)
    recording.replays.clear()

    (found,) = decode_streams([stream], codes, graphs=recording.graphs)

    assert not recording.replays
    torch.testing.assert_close(found, whole(golden_decoder, codes[0]), atol=EXACT, rtol=0)


def test_a_stream_longer_than_the_kept_positions_goes_on_eagerly(
    golden_decoder: CodecDecoder, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve minutes are too long for a test: the bound is put at eight frames."""
    monkeypatch.setattr("synth.engine.codec.streams.MAX_KEPT_POSITIONS", 8)
    monkeypatch.setattr("synth.engine.codec.chunks.MAX_KEPT_POSITIONS", 8)
    codes = [random_codes(golden_decoder.config, 12)]
    recording.replays.clear()

    (found,), _ = decode_rounds(golden_decoder, codes, [[4], [4], [4]], recording)

    assert recording.replays == [(4, 1), (4, 1)]
    torch.testing.assert_close(found, whole(golden_decoder, codes[0]), atol=EXACT, rtol=0)


def test_a_replay_that_fails_leaves_every_stream_where_it_was(
    golden_decoder: CodecDecoder, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [random_codes(golden_decoder.config, 8)]
    stream = CodecStream(golden_decoder)
    first = stream.decode(codes[0][:, :4])
    recorded = recording.graphs._recorded[4, 1]
    work = recorded.replay

    def fail_behind() -> None:
        work()
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(recorded, "replay", fail_behind)
    with pytest.raises(torch.OutOfMemoryError):
        decode_streams([stream], [codes[0][:, 4:]], graphs=recording.graphs)
    monkeypatch.undo()

    assert stream.num_frames == 4
    (second,) = decode_streams([stream], [codes[0][:, 4:]], graphs=recording.graphs)
    found = torch.cat([first, second])
    torch.testing.assert_close(found, whole(golden_decoder, codes[0]), atol=EXACT, rtol=0)


def test_what_a_caller_got_does_not_change_with_the_next_replay(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    stream, codes = CodecStream(golden_decoder), random_codes(golden_decoder.config, 8)
    (first,) = decode_streams([stream], [codes[:, :4]], graphs=recording.graphs)
    kept = first.clone()

    decode_streams([stream], [codes[:, 4:]], graphs=recording.graphs)

    assert torch.equal(first, kept)


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
    streams = [CodecStream(golden_decoder) for _ in codes]
    for matrix, wave in zip(codes, decode_streams(streams, codes, graphs=graphs), strict=True):
        torch.testing.assert_close(wave, whole(golden_decoder, matrix), atol=EXACT, rtol=0)


def test_the_memory_of_recordings_is_known_from_sizes_alone(
    golden_decoder: CodecDecoder, recording: Recording
) -> None:
    graphs = recording.graphs
    held = graphs._rows.nbytes + graphs._rope.untyped_storage().nbytes()
    assert graph_bytes(golden_decoder.config, torch.float32, 0) == held
    assert graph_bytes(golden_decoder.config, torch.float32, 10) == held + 10 * MOST_FRAMES


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
        streams = [CodecStream(decoder) for _ in codes]
        start, parts = 0, []
        for lengths in rounds:
            chunks = [matrix[:, start : start + lengths[0]] for matrix in codes]
            parts.append(torch.stack(decode_streams(streams, chunks, graphs=graphs)))
            start += lengths[0]
        torch.cuda.synchronize()

    found = torch.cat(parts, dim=1).cpu()
    for audio, matrix in zip(found, codes, strict=True):
        torch.testing.assert_close(audio, whole(golden_decoder, matrix.cpu()), atol=1e-3, rtol=0)


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


def test_work_is_warmed_up_recorded_and_replayed(capture: CudaCapture) -> None:
    replay = capture(lambda: FakeGraph.asked.append("work"))
    replay()
    recorded = [("begin", (0, 0), "thread_local"), "work", "end", "replay"]
    assert FakeGraph.asked == ["work"] * WARM_UP_RUNS + ["synchronize", *recorded]


def test_all_graphs_share_one_pool(capture: CudaCapture) -> None:
    for _ in range(3):
        capture(lambda: None)

    assert [item[1] for item in FakeGraph.asked if isinstance(item, tuple)] == [(0, 0)] * 3


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
