"""A worker whose slots do not fit into memory says so with the numbers, and takes no work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from synth.models import WorkerStatus
from tests.synth.engine.random_checkpoint import write_checkpoint
from tests.workers.conftest import TINY
from tests.workers.pairs import Pair


def test_worker_fails_before_it_loads_and_its_row_says_what_to_set(
    pair: Pair, tmp_path: Path
) -> None:
    # Small weights and large heads: 512 slots would take a terabyte, more than test machines have.
    checkpoint = tmp_path / "checkpoint"
    sizes = {"n_local_heads": 4, "head_dim": 1024, "max_seq_len": 32_768}
    write_checkpoint(checkpoint, text=sizes)
    shutil.copyfile(TINY / "codec.pth", checkpoint / "codec.pth")
    for path in checkpoint.glob("*.safetensors"):
        path.write_bytes(b"no weight may be read")

    worker = pair.start_worker(
        "w1",
        TTS_CHECKPOINT=checkpoint,
        TTS_ENGINE_SLOTS=512,
        TTS_ENGINE_MAX_POSITIONS=32_768,
        TTS_DEVICE="cpu",
    )

    assert worker.popen.wait(180) == 1
    row = WorkerStatus.objects.get(pk="w1")
    assert row.state == WorkerStatus.State.FAILED
    sentence = (
        r"512 slots of 32768 positions need [\d.]+ GB, but this (machine|container) has only "
        r"[\d.]+ GB left for them: .* "
        r"Set (TTS_ENGINE_SLOTS to \d+ or fewer|TTS_ENGINE_MAX_POSITIONS to)"
    )
    assert re.search(sentence, row.detail), row.detail
    assert re.search(sentence, worker.log)
