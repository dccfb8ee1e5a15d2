"""Test lab.bench.codec: what a row says of the way the codec was run."""

from __future__ import annotations

import pytest

from lab.bench import codec
from tests.lab.bench.bench_options import run

SMALL = ("--frames", "4", "--batch", "2", "--precision", "float32", "--windows", "1")


@pytest.mark.compiler
def test_the_work_of_a_frame_is_the_same_whoever_does_it() -> None:
    plain, compiled = (run(codec, *SMALL, "--kernels", choice).rows for choice in ("off", "auto"))
    assert [row["kernels"] for row in (*plain, *compiled)] == [False, False, True, True]
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours["streamed"] == theirs["streamed"]
        assert ours["gigaflops_per_frame"] == theirs["gigaflops_per_frame"] > 0
        assert ours["error_db"] < -90


def test_a_plain_decoder_decodes_the_whole_without_an_error() -> None:
    (row,) = run(codec, *SMALL, "--kernels", "off", "--streamed", "0").rows
    assert row["error_db"] is None and row["error_max"] == 0
    assert row["ratio_to_one_shot"] == 1
