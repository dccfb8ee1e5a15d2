"""Benchmarks of the whole service, run as a person does; both ways do the same work."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lab.bench.service.e2e import read_chapters
from synth.formats import FORMATS
from ttsweb.commands.base import StepError

PROJECT = Path(__file__).resolve().parents[4]
PATIENCE_SECONDS = 400


def bench(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status of `manage.py bench ARGUMENTS --json` and what it printed."""
    ended = subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments, "--json"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


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
        f"TTS_STORAGE={tmp_path / 'precious'}\n"
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


@pytest.mark.thorough
def test_first_bytes_come_in_every_format_before_the_last(clean_env: dict[str, str]) -> None:
    status, content = bench(clean_env, "first-byte", "--rounds", "1")

    assert status == 0, content
    assert {row["way"] for row in content["rows"]} >= {*FORMATS, "mp3 as events"}
    for row in content["rows"]:
        assert 0 < row["first_byte_seconds"] < row["last_byte_seconds"], row["way"]
        assert row["audio_seconds"] > 5, row["way"]
        is_wav = row["way"].startswith("wav")  # of unknown length, which FFmpeg remarks on
        assert is_wav or row["decode_warnings"] == [], row["way"]


@pytest.mark.thorough
def test_worker_that_cannot_start_ends_the_benchmark_with_its_sentence(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    status, content = bench(
        clean_env, "e2e", "--book", str(BOOK), "--checkpoint", str(tmp_path / "nowhere")
    )
    assert status == 1
    assert content["error"]["code"] == "worker_failed"
    assert str(tmp_path / "nowhere") in content["error"]["message"]


@pytest.mark.thorough
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


@pytest.mark.thorough
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


def test_chapters_come_in_the_order_of_the_spine_without_front_and_back_matter() -> None:
    chapters = read_chapters(BOOK, count=13)
    paragraphs = chapters[0].split("\n\n")
    assert paragraphs[1].startswith("The Time Traveller (for so it will be convenient")
    assert chapters[0].endswith("and he winked at me solemnly.")
    assert "<" not in chapters[0]
    assert [text.split("\n\n")[0] for text in chapters[:3]] == ["I", "II", "III"]
    assert chapters[12].startswith("Epilogue")
    assert not any("Standard Ebooks" in text for text in chapters)
    with pytest.raises(StepError, match="has only 13 chapters, not 14") as caught:
        read_chapters(BOOK, count=14)
    assert caught.value.code == "book_too_short"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", None),
        (b"no zip", None),
        (None, None),
        ({"hello.txt": "Hello."}, "not a readable EPUB"),
    ],
)
def test_a_file_that_is_no_book_is_refused(
    tmp_path: Path, content: bytes | dict[str, str] | None, words: str | None
) -> None:
    path = tmp_path / "book.epub"
    if isinstance(content, dict):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(StepError, match=words) as caught:
        read_chapters(path, count=1)
    assert caught.value.code == "book_not_read"
