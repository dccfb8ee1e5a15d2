"""Benchmarks on the tiny model: what a row says, and that what is compared is the same work."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from lab.bench import ar, codec, fast, prefill, segments, stream
from lab.bench.baseline import BaselineLoop
from lab.bench.models.presets import preset_dual_ar
from lab.bench.models.shapes import preset
from lab.bench.report import BenchFailedError
from lab.bench.stepping import DecodeBatch
from synth.contract import FinishReason, RenderSpec, Sampling, SegmentAudio, Timings
from synth.engine import Engine
from synth.engine.errors import InvalidSpecError, PromptTooLongError
from synth.engine.model import decode as graph_capture
from tests import services
from tests.lab.bench.bench_options import run
from tests.synth.engine.model.stand_in_graphs import StandInGraphs

AR = ("--frames", "2", "--windows", "1", "--baseline-frames", "1", "--context", "20")


def test_the_plain_loop_reads_the_models_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = Mock(side_effect=ar.Ours), Mock(side_effect=ar.Plain)
    monkeypatch.setattr(ar, "Ours", ours)
    monkeypatch.setattr(ar, "Plain", plain)
    more = ("--batch", "1", "--dtype", "float32", "--baseline", "--baseline-dtype", "float32")
    run(ar, *AR, *more)

    table = ours.call_args.args[1].model.slow.embeddings.weight
    loop = next(each for each in plain.call_args.args if isinstance(each, BaselineLoop))
    assert loop.weights["slow.embeddings.weight"].data_ptr() == table.data_ptr()


def test_a_row_says_how_fast_a_stream_is_and_that_no_graph_was_replayed() -> None:
    report = run(ar, *AR, "--batch", "1,2", "--graphs", "off,auto")
    assert [row["batch"] for row in report.rows] == [1, 2]  # auto is off on a CPU: measured once
    for row in report.rows:
        assert row["graphs"] == "off"
        assert row["graph_nodes"] is None
        seconds = row["batch"] / row["frames_per_second"]
        assert row["real_time_factor"] == pytest.approx(seconds * 44_100 / 2048)
        assert row["acoustic_tokens_per_second"] == pytest.approx(10 * row["frames_per_second"])


@pytest.mark.compiler
def test_compiled_frames_are_measured_beside_those_of_pytorch() -> None:
    report = run(ar, *AR, "--batch", "1", "--kernels", "off,auto")
    rows = {row["kernels"]: row for row in report.rows}
    assert rows["on"]["linear_form"] == "native"
    assert rows["off"]["linear_form"] in ("packed", "plain")
    assert rows["on"]["logits_error"] < 0.02


@pytest.mark.compiler
def test_what_streams_begin_with_alike_is_read_once_by_compiled_frames() -> None:
    sizes = ("--batch", "3", "--shared", "0,15", "--kernels", "off,auto", "--dtype", "float32")
    report = run(ar, *AR, *sizes)
    rows = {(row["kernels"], row["shared"]): row for row in report.rows}
    position = 2 * 2 * 2 * 16 * 4 / 1e6  # keys and values, two layers of two heads of 16, float32
    apart = rows["on", 0]["step_megabytes"]
    assert rows["on", 15]["step_megabytes"] == pytest.approx(apart - 2 * 15 * position)
    assert rows["off", 15]["step_megabytes"] == rows["off", 0]["step_megabytes"] == apart


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--batch", "2", "--shared", "5,19"), "^19 shared .* of 20 with 2 frames have only 19"),
        (("--graphs", "on"), "need a CUDA device"),
    ],
)
def test_what_there_is_not_is_refused(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        run(ar, *AR, *arguments)


def test_slots_have_the_positions_that_are_asked_for() -> None:
    report = run(ar, *AR, "--batch", "1", "--positions", "100")
    assert report.rows[0]["cache_length"] == 100


def test_a_captured_step_is_replayed_for_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = StandInGraphs()
    monkeypatch.setattr(graph_capture, "CudaGraphs", lambda device: backend)
    cpu = torch.device("cpu")
    model = preset_dual_ar(preset("tiny"), device=cpu, dtype="float32", kernels="off")
    eager = DecodeBatch(model, batch=2, context=20, frames=4, seed=0)
    replayed = DecodeBatch(model, batch=2, context=20, frames=4, seed=0, graphs=True)

    for batch in (eager, replayed):
        batch.rewind()
        assert batch.decode() == 8

    assert torch.equal(eager.state.history[:, :5], replayed.state.history[:, :5])


def test_a_row_has_the_time_and_the_floor_of_nine_passes() -> None:
    report = run(fast, "--batch", "1,2", "--frames", "2", "--windows", "1", "--dtype", "float32")

    layers, head = 2 * (64 * 16 * 12 + 3 * 64 * 96), 256 * 64  # two layers of the tiny shape
    num_bytes = 4 * 9 * (layers + head)
    copy = report.facts["copy_gigabytes_per_second"] * 1e9
    assert [row["batch"] for row in report.rows] == [1, 2]
    row = report.rows[0]
    assert row["floor_milliseconds"] >= 1000 * num_bytes / copy * (1 - 1e-9)
    assert row["ratio_to_roofline"] == pytest.approx(
        row["floor_milliseconds"] / row["milliseconds"]
    )
    assert row["graphs"] == "off"


def test_a_frame_is_filled_as_the_engine_does_it() -> None:
    model = preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")
    case = fast._Case(model, 3, False, 1, 0)
    codes = case.fill()
    assert codes.shape == (3, 10)
    cache = model.fast.allocate_cache(3)
    with torch.inference_mode():
        logits = model.fast.first(case.hidden, codes[:, 0], cache)
        assert torch.equal(logits.argmax(-1), codes[:, 1])
        assert torch.equal(model.fast.next(codes[:, 1], 2, cache).argmax(-1), codes[:, 2])


def test_all_plain_loops_read_the_models_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[int] = []

    class Noted(BaselineLoop):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on
            tables.append(self.weights["slow.embeddings.weight"].data_ptr())

    monkeypatch.setattr(prefill, "BaselineLoop", Noted)
    sizes = ("--tokens", "4,6", "--prefix", "0,5", "--windows", "1", "--dtype", "float32")

    report = run(prefill, *sizes, "--baseline")

    assert len(tables) == len(report.rows) == 6
    assert len(set(tables)) == 1
    assert all(row["ratio_to_baseline"] > 0 for row in report.rows)


CODEC = ("--frames", "4", "--batch", "2", "--precision", "float32", "--windows", "1")


@pytest.mark.compiler
def test_the_work_of_a_frame_is_the_same_whoever_does_it() -> None:
    plain, compiled = (run(codec, *CODEC, "--kernels", choice).rows for choice in ("off", "auto"))
    assert [row["kernels"] for row in (*plain, *compiled)] == [False, False, True, True]
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours["streamed"] == theirs["streamed"]
        assert ours["gigaflops_per_frame"] == theirs["gigaflops_per_frame"] > 0
        assert ours["error_db"] < -90


def test_a_plain_decoder_decodes_the_whole_without_an_error() -> None:
    (row,) = run(codec, *CODEC, "--kernels", "off", "--streamed", "0").rows
    assert row["error_db"] is None and row["error_max"] == 0
    assert row["ratio_to_one_shot"] == 1


def test_all_frames_of_all_segments_are_counted() -> None:
    sizes = ("--slots", "2", "--segments", "5", "--frames", "6", "--voice-frames", "8")
    row = run(segments, *sizes, "--text-letters", "20").rows[0]
    assert row["segments"] == 5
    assert 5 * 3 <= row["frames"] <= 5 * 9  # half as long to half as long again
    assert row["frames_per_second"] == pytest.approx(row["frames"] / row["wall_seconds"])
    assert row["acoustic_tokens_per_second"] == pytest.approx(10 * row["frames_per_second"])
    assert row["batch"] == 2
    assert (row["graphs"], row["graph_nodes"]) == ("off", None)
    assert row["kernels"] == ("off" if services.why_missing("compiler") else "on")


def test_the_full_rate_ends_where_slots_begin_to_stand_empty() -> None:
    frames, ended = [10, 20, 30, 40], [4.0, 1.0, 2.0, 9.0]
    assert segments.full_rate(frames, ended, slots=2) == (20 + 30) / 2.0
    assert segments.full_rate(frames, ended, slots=1) == (10 + 20 + 30) / 4.0
    assert segments.full_rate(frames, ended, slots=3) is None


def test_a_segment_that_ends_early_is_no_figure() -> None:
    codes, audio = np.zeros((10, 5), np.int16), np.zeros(5, np.float32)
    take = SegmentAudio(codes, audio, 44_100, FinishReason.FRAME_LIMIT, Timings(0, 0, 0, 0))
    spec = RenderSpec("text", None, Sampling(max_frames=5))

    segments._check(spec, take)
    with pytest.raises(BenchFailedError, match="of 5 frames ended with 5"):
        segments._check(spec, dataclasses.replace(take, finish_reason=FinishReason.END))
    with pytest.raises(BenchFailedError, match="of 6 frames ended with 5"):
        segments._check(dataclasses.replace(spec, sampling=Sampling(max_frames=6)), take)


SIZES = ("--requests", "2", "--frames", "4", "--slots", "2", "--voice-frames", "6")
STREAM = (*SIZES, "--text-letters", "20")


def test_what_runs_beside_a_stream_fits_into_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[Future[SegmentAudio]] = []
    submit = Engine.submit

    def note(engine: Engine, spec: RenderSpec, *, priority: int = 0) -> Future[SegmentAudio]:
        future = submit(engine, spec, priority=priority)
        if priority:
            beside.append(future)
        return future

    monkeypatch.setattr(Engine, "submit", note)

    report = run(stream, *STREAM, "--busy", "0,1")

    assert [row["busy_slots"] for row in report.rows] == [0, 0, 0, 1, 1, 1]
    assert beside
    assert all(future.cancelled() or future.exception() is None for future in beside)


def test_slots_that_could_not_be_kept_busy_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BUSY_TIMES", 20_000)
    monkeypatch.setattr(stream, "check_context", lambda shape, positions: None)
    with pytest.raises(PromptTooLongError):
        run(stream, *STREAM, "--busy", "1")
