"""The benchmark of the whole service renders a book by both ways and compares the same work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.bench.service.bench_runs import PROJECT, bench

BOOK = PROJECT / "tests" / "data" / "books" / "the-time-machine_standardebooks.epub"


@pytest.mark.thorough
def test_both_ways_render_the_same_frames_and_only_the_benchmarks_own_service_is_used(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    temporary, env_file = tmp_path / "temporary", tmp_path / "service.env"
    temporary.mkdir()
    env_file.write_text(
        "TTS_DATABASE_URL=postgresql://nobody@127.0.0.1:1/none\n"
        "TTS_REDIS_URL=redis://127.0.0.1:1/0\n"
        f"TTS_STORAGE_DIR={tmp_path / 'precious'}\n"
        f"TTS_SECRET_KEY={'x' * 50}\n"
    )
    environment = clean_env | {"TMPDIR": str(temporary), "TTS_ENV_FILE": str(env_file)}

    status, content = bench(
        environment, "e2e", "--book", str(BOOK), "--segments", "3", "--slots", "4", "--repeat", "2"
    )

    queue, engine = content["rows"]
    assert status == 0
    assert (queue["path"], engine["path"]) == ("queue", "engine")
    assert queue["segments"] == engine["segments"] >= 3
    assert queue["frames"] - queue["retake_frames"] == engine["frames"] > 0
    assert bool(queue["retakes"]) == bool(queue["retake_frames"])
    assert engine["retakes"] == engine["retake_frames"] == 0
    assert queue["audio_seconds"] == pytest.approx(engine["audio_seconds"])
    assert queue["frames_per_second_low"] <= queue["frames_per_second"]
    assert queue["wall_seconds"] >= queue["seconds"] > 0
    assert engine["cpu_seconds"] > 0
    assert len(content["ratios_to_engine"]) == 2
    assert min(content["ratios_to_engine"]) <= content["ratio_to_engine"]
    assert (content["threads"], content["database"], content["broker"]) == (1, "sqlite", "files")
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "precious").exists()
    assert not (Path(clean_env["TTS_DATA_DIR"]) / "db.sqlite3").exists()


@pytest.mark.thorough
def test_many_jobs_are_sent_and_all_their_files_are_counted(clean_env: dict[str, str]) -> None:
    status, content = bench(clean_env, "e2e", "--jobs", "20", "--posts", "20")

    [row] = content["rows"]
    assert status == 0
    assert (row["jobs"], row["posts"]) == (20, 20)
    assert row["files"] == 40 + row["interactive_beside_requests"]
    assert row["files_per_second"] == pytest.approx(row["files"] / row["seconds"])
    assert 0 < row["post_seconds_p50"] <= row["post_seconds_p95"]
    assert row["interactive_ratio"] == pytest.approx(
        row["interactive_beside_seconds"] / row["interactive_idle_seconds"]
    )


def test_worker_that_cannot_start_ends_the_benchmark_with_its_sentence(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    status, content = bench(
        clean_env, "e2e", "--book", str(BOOK), "--checkpoint", str(tmp_path / "nowhere")
    )
    assert status == 1
    assert content["error"]["code"] == "worker_failed"
    assert str(tmp_path / "nowhere") in content["error"]["message"]


def test_database_in_use_is_refused(clean_env: dict[str, str], tmp_path: Path) -> None:
    database = tmp_path / "used.sqlite3"
    environment = clean_env | {
        "TTS_DATABASE_URL": f"sqlite:///{database}",
        "TTS_SECRET_KEY": "x" * 50,
    }
    setup = (
        "import django; django.setup()\n"
        "from django.core.management import call_command; call_command('migrate', verbosity=0)\n"
        "from tests.factories import make_job; make_job()"
    )
    subprocess.run([sys.executable, "-c", setup], env=environment, cwd=PROJECT, check=True)

    status, content = bench(
        clean_env, "e2e", "--book", str(BOOK), "--database", f"sqlite:///{database}"
    )

    assert status == 1
    assert content["error"]["code"] == "database_in_use"
