"""Whole frames: what a row says, and that the plain loop costs no second copy of the weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.bench import ar
from lab.bench.baseline import BaselineLoop
from lab.bench.presets import preset_dual_ar
from lab.bench.stepping import DecodeBatch
from synth.engine.errors import InvalidSpecError
from synth.engine.presets import preset
from tests.lab.bench.bench_options import run

SMALL = ("--frames", "2", "--windows", "1", "--baseline-frames", "1", "--context", "20")


def test_the_plain_loop_reads_the_models_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[DecodeBatch] = []
    loops: list[BaselineLoop] = []
    ours, plain = ar.Ours, ar.Plain

    def note_ours(name: str, batch: DecodeBatch, *rest: Any) -> Any:
        batches.append(batch)
        return ours(name, batch, *rest)

    def note_plain(name: str, dtype: str, loop: BaselineLoop, *rest: Any) -> Any:
        loops.append(loop)
        return plain(name, dtype, loop, *rest)

    monkeypatch.setattr(ar, "Ours", note_ours)
    monkeypatch.setattr(ar, "Plain", note_plain)
    more = ("--batch", "1", "--dtype", "float32", "--baseline", "--baseline-dtype", "float32")
    run(ar, *SMALL, *more)

    ours_table = batches[0].model.slow.embeddings.weight
    assert loops[0].weights["slow.embeddings.weight"].data_ptr() == ours_table.data_ptr()


def test_a_row_says_how_fast_a_stream_is_and_that_no_graph_was_replayed() -> None:
    report = run(ar, *SMALL, "--batch", "1,2", "--graphs", "off,auto")

    assert [row["batch"] for row in report.rows] == [1, 2]  # auto is off on a CPU: measured once
    for row in report.rows:
        assert row["graphs"] == "off"
        assert row["graph_nodes"] is None
        seconds = row["batch"] / row["frames_per_second"]
        assert row["real_time_factor"] == pytest.approx(seconds * 44_100 / 2048)
        assert row["acoustic_tokens_per_second"] == pytest.approx(10 * row["frames_per_second"])


@pytest.mark.compiler
def test_compiled_frames_are_measured_beside_those_of_pytorch() -> None:
    report = run(ar, *SMALL, "--batch", "1", "--kernels", "off,auto")

    rows = {row["kernels"]: row for row in report.rows}
    assert rows["on"]["linear_form"] == "native"
    assert rows["off"]["linear_form"] in ("packed", "plain")
    assert rows["on"]["logits_error"] < 0.02


@pytest.mark.compiler
def test_what_streams_begin_with_alike_is_read_once_by_compiled_frames() -> None:
    report = run(
        ar,
        *SMALL,
        "--batch",
        "3",
        "--shared",
        "0,15",
        "--kernels",
        "off,auto",
        "--dtype",
        "float32",
    )

    rows = {(row["kernels"], row["shared"]): row for row in report.rows}
    position = 2 * 2 * 2 * 16 * 4 / 1e6  # keys and values, two layers of two heads of 16, float32
    apart = rows["on", 0]["step_megabytes"]
    assert rows["on", 15]["step_megabytes"] == pytest.approx(apart - 2 * 15 * position)
    assert rows["off", 15]["step_megabytes"] == rows["off", 0]["step_megabytes"] == apart


def test_a_beginning_that_leaves_a_stream_no_column_of_its_own_is_refused() -> None:
    with pytest.raises(
        InvalidSpecError, match=r"^19 shared positions .* of 20 with 2 frames have only 19"
    ):
        run(ar, *SMALL, "--batch", "2", "--shared", "5,19")


def test_a_graph_is_refused_where_there_is_none() -> None:
    with pytest.raises(InvalidSpecError, match="need a CUDA device"):
        run(ar, *SMALL, "--graphs", "on")


def test_slots_have_the_positions_that_are_asked_for() -> None:
    report = run(ar, *SMALL, "--batch", "1", "--positions", "100")
    assert report.rows[0]["cache_length"] == 100


def test_a_captured_step_is_replayed_for_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    from synth.engine.model import graphs as graph_capture
    from tests.synth.engine.model.stand_in_graphs import StandInGraphs

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
