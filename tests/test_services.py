"""A test whose service is missing is skipped with a reason, or fails where it is required."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from tests import services
from tests.sources import PROJECT

SAMPLE = """
import pytest

@pytest.mark.redis
def test_with_redis():
    pass

@pytest.mark.checkpoint
def test_with_checkpoint():
    pass

def test_with_nothing():
    pass
"""


# Run by one process, whose forks each are pytest with our conftest and variables of their own.
RUNNER = """
import json, os, sys
import pytest
import tests.conftest
ends = []
for number, changed in enumerate(json.loads(sys.argv[1])):
    if not (child := os.fork()):
        os.environ.update(changed)
        for descriptor in (1, 2):
            os.dup2(os.open(f"{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        sys.exit(pytest.main(["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "."]))
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
"""


def test_missing_service_is_a_skip_or_a_failure_and_one_that_is_here_is_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    server = tmp_path / "programs" / "redis-server"
    server.parent.mkdir()
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    changes = [
        {},
        {"TTS_TEST_REQUIRE": "redis, postgres"},
        {"TTS_TEST_REQUIRE": "redis", "PATH": str(server.parent)},
        {"TTS_TEST_REQUIRE": "redis,postgers"},
    ]
    ended = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(changes)],
        cwd=tmp_path,
        env={
            "PATH": str(tmp_path), "PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
        },
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    skipped, required, used, misspelt = (
        (tmp_path / f"{number}.txt").read_text() for number in range(4)
    )

    assert json.loads(ended.stdout) == [0, 1, 0, 4], skipped
    assert "1 passed, 2 skipped" in skipped
    assert "= left out =" in skipped
    assert "1 x redis: no redis-server program was found" in skipped
    assert "1 x checkpoint: TTS_TEST_CHECKPOINT names no checkpoint" in skipped
    assert re.search(r"1 passed, 1 skipped, .*1 error", required)
    assert "redis is required (TTS_TEST_REQUIRE), but no redis-server" in required
    assert "2 passed, 1 skipped" in used
    assert "postgers is none of redis, postgres, browser" in misspelt


def test_unreachable_postgres_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_TEST_POSTGRES_URL", "postgresql://u:topsecret@127.0.0.1:1/x")
    reason = services.why_no_postgres()
    assert reason is not None
    assert "does not answer" in reason
    assert "topsecret" not in reason


def test_every_mark_of_a_service_is_declared() -> None:
    declared = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    for name in services.CHECKS:
        assert f'"{name}: ' in declared


@pytest.mark.redis
def test_redis_of_the_run_is_empty_and_its_own(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("key", "value")
    assert ":6379/" not in redis_url


@pytest.mark.postgres
def test_postgres_database_of_a_test_is_empty_and_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        name = connection.execute("SELECT current_database()").fetchone()
        tables = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    assert name is not None and name[0].startswith("ttsweb_test_")
    assert tables == (0,)


def test_environment_of_a_started_process_has_no_setting_from_outside(
    clean_env: dict[str, str],
) -> None:
    ours = {name for name in clean_env if name.startswith("TTS_")}
    assert ours == {"TTS_DATA_DIR", "TTS_ENV_FILE"}
    assert clean_env["TTS_ENV_FILE"] == os.devnull


def test_one_place_starts_a_browser_once_a_process() -> None:
    sources = {path: path.read_text() for path in (PROJECT / "tests").rglob("*.py")}
    starting = [path for path, text in sources.items() if ".Chrome" + "(" in text]
    assert [path.name for path in starting] == ["chrome.py"]
    assert '@pytest.fixture(scope="session")\ndef chrome(' in sources[starting[0]]
