"""A stored voice is sent once; a clip that comes with each request is encoded once as well."""

from __future__ import annotations

import pytest

from tests.lab.bench.service.bench_runs import bench

pytestmark = pytest.mark.thorough


def test_stored_voice_saves_bytes_and_neither_way_encodes_twice(clean_env: dict[str, str]) -> None:
    status, content = bench(
        clean_env, "inline-vs-stored", "--requests", "2", "--seconds", "3", "--slots", "2"
    )

    assert status == 0, content
    inline, stored = content["rows"]
    assert [inline["way"], stored["way"]] == ["inline", "stored"]
    assert (inline["encoder_runs"], stored["encoder_runs"]) == (1, 1)
    assert inline["clip_seconds"] == stored["clip_seconds"] == 3
    assert inline["request_bytes"] > 100_000 > 1000 > stored["request_bytes"]
    for row in (inline, stored):
        assert 0 < row["audio_seconds_low"] <= row["audio_seconds"] <= row["audio_seconds_high"]
        assert row["engine_first_audio_seconds"] > 0
    assert inline["audio_seconds"] == pytest.approx(
        (inline["audio_seconds_low"] + inline["audio_seconds_high"]) / 2
    )
