"""The database: several starts migrate it once, and writers of an SQLite file go one by one."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from synth.accounts.access import create_key
from synth.models import LaneTurn, RenderJob
from tests.factories import make_user, make_voice
from tests.workers.commands import run_python
from ttsweb.migration import OldDatabaseError, missing_migrations
from ttsweb.sqlite.base import WriteTurns

# Three processes at once, forks of one that has loaded Django and no database.
MIGRATE = """
import os
import django; django.setup()
from django.conf import settings
from ttsweb.migration import migrate_once, missing_migrations
children = []
for _ in range(3):
    if not (child := os.fork()):
        print(migrate_once(settings.DATA_DIR), len(missing_migrations()), flush=True)
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


def check_one_of_three_migrates(environment: dict[str, str]) -> None:
    """Start three at once: one applies everything, and nobody fails or sees half of it."""
    lines = [line.split() for line in run_python(environment, MIGRATE).splitlines()]
    assert sorted(int(applied) > 0 for applied, _ in lines) == [False, False, True]
    assert [missing for _, missing in lines] == ["0", "0", "0"]


def test_one_of_three_starts_migrates_sqlite(clean_env: dict[str, str]) -> None:
    check_one_of_three_migrates(clean_env)


@pytest.mark.postgres
def test_one_of_three_starts_migrates_postgresql(
    clean_env: dict[str, str], postgres_url: str
) -> None:
    check_one_of_three_migrates(
        clean_env | {"TTS_DATABASE_URL": postgres_url, "TTS_SECRET_KEY": os.urandom(30).hex()}
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("app", "unapplied", "applied"),
    [
        ("synth", ["0001_tables"], "0001_squashed"), ("synth", ["0001_tables"], "0001_initial"),
        ("voices", ["0001_squashed", "0006_losses"], ""),  # some of what was joined
    ],
)  # fmt: skip
def test_database_of_an_early_version_is_refused_with_a_sentence(
    app: str, unapplied: list[str], applied: str
) -> None:
    recorder = MigrationRecorder(connection)
    for name in unapplied:
        recorder.record_unapplied(app, name)
    if applied:
        recorder.record_applied(app, applied)
    with pytest.raises(OldDatabaseError, match=rf"an early .* whose tables of '{app}'"):
        missing_migrations()


@pytest.mark.django_db
def test_database_lacks_later_migrations_and_none_where_it_has_all_that_were_joined() -> None:
    MigrationRecorder(connection).record_unapplied("voices", "0001_squashed")
    assert missing_migrations() == []
    MigrationRecorder(connection).record_unapplied("synth", "0007_worker_runs_and_refused_tries")
    assert missing_migrations() == ["synth.0007_worker_runs_and_refused_tries"]


# --- writers of an SQLite file, whichever process or thread they are in ---------------------------

WAIT_SECONDS = 60.0
# Writes all the time, until there is a file; prints something as soon as it writes.
OTHER = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from ttsweb.sqlite.base import WriteTurns

    turns = WriteTurns(Path(sys.argv[1]))
    taken = 0
    while not Path(sys.argv[2]).exists():
        assert turns.acquire(60)
        print(taken, flush=True) if not taken else None
        taken += 1
        time.sleep(0.02)
        turns.release()
    print(taken, flush=True)
""")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.sqlite3-turns"


def start_other(path: Path, over: Path, code: str = OTHER) -> subprocess.Popen[str]:
    """Return a process that writes."""
    command = [sys.executable, "-c", code, str(path), str(over)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    other.stdout.readline()
    return other


def wait_locked(path: Path, place: int, pid: int) -> None:
    """Return once a process has the lock of a byte of a file."""
    inode = str(path.stat().st_ino)
    mine = re.compile(rf"POSIX +ADVISORY +WRITE {pid} \S+:{inode} {place} {place}$", re.MULTILINE)
    until = time.monotonic() + WAIT_SECONDS
    while not mine.search(Path("/proc/locks").read_text()):
        assert time.monotonic() < until, "it never stood in the line"
        time.sleep(0.01)


def start_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        work()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_threads_write_one_at_a_time_in_the_order_in_which_they_came(path: Path) -> None:
    turns = WriteTurns(path)
    order: list[int] = []
    assert turns.acquire(WAIT_SECONDS)

    def write(number: int) -> None:
        assert turns.acquire(WAIT_SECONDS)
        order.append(number)
        turns.release()

    threads = []
    for number in range(5):
        threads.append(start_thread(partial(write, number)))
        while len(turns._waiting) <= number:
            time.sleep(0.001)
    turns.release()
    for thread in threads:
        thread.join(WAIT_SECONDS)

    assert order == [0, 1, 2, 3, 4]


def test_who_waits_has_the_next_turn_beside_a_process_that_writes_all_the_time(
    path: Path, tmp_path: Path
) -> None:
    over, turns = tmp_path / "over", WriteTurns(path)
    other = start_other(path, over)
    try:
        for _ in range(10):
            assert turns.acquire(WAIT_SECONDS)
            turns.release()
    finally:
        over.touch()
    taken = int(other.communicate(timeout=WAIT_SECONDS)[0])

    # Each of ours may wait for the one that writes and, once it looks, for one more.
    assert taken <= 10 * 3


def test_turn_of_a_killed_process_is_free_again(path: Path, tmp_path: Path) -> None:
    sleeps = OTHER.replace("time.sleep(0.02)", "time.sleep(3600)")
    other, turns = start_other(path, tmp_path / "never", sleeps), WriteTurns(path)
    assert not turns.acquire(0.05)
    other.kill()
    other.communicate(timeout=WAIT_SECONDS)

    assert turns.acquire(WAIT_SECONDS)


@pytest.mark.parametrize("place", ["in the line", "as the writer"])
def test_process_suspended_with_a_lock_of_the_line_is_passed(
    path: Path, tmp_path: Path, place: str
) -> None:
    over = tmp_path / "over"
    sleeps = OTHER.replace("time.sleep(0.02)", "time.sleep(3600)")
    writer = start_other(path, over, sleeps) if place == "in the line" else None
    waits = "import os\n" + OTHER.replace(
        "assert turns.acquire", "print(flush=True)\n    turns.acquire"
    )
    stopped = start_other(path, over, waits if writer else sleeps)
    if writer:
        wait_locked(path, 0, stopped.pid)
    turns = WriteTurns(path)
    try:
        stopped.send_signal(signal.SIGSTOP)
        if writer:
            writer.kill()
            writer.communicate(timeout=WAIT_SECONDS)
        for _ in range(200):  # one by one for seconds: not each of them waits anew
            assert turns.acquire(WAIT_SECONDS)
            turns.release()
    finally:
        over.touch()
        stopped.kill()
        stopped.communicate(timeout=WAIT_SECONDS)

    assert turns.acquire(WAIT_SECONDS)
    assert not turns._passed, "those who came after it are let pass as well"


def test_turn_that_did_not_come_is_nobodys(path: Path) -> None:
    turns = WriteTurns(path)
    assert turns.acquire(0)
    assert not turns.acquire(0.01)
    turns.release()
    assert turns.acquire(0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="turns are SQLite's")
class TestBackend:
    """The database backend takes a turn for all that writes, and gives it back."""

    def write(self) -> None:
        LaneTurn.objects.create(priority=0, lane="a", turn_at="2026-01-01T00:00:00Z")

    def test_statement_by_itself_waits_for_a_transaction(self) -> None:
        with transaction.atomic():
            thread = start_thread(self.write)
            thread.join(0.2)
            assert thread.is_alive()
            assert not LaneTurn.objects.exists()
        thread.join(WAIT_SECONDS)
        assert LaneTurn.objects.count() == 1

    @pytest.mark.parametrize("error", [ValueError, OperationalError, None])
    def test_transaction_that_is_broken_off_or_closed_keeps_nobody_waiting(
        self, error: type[Exception] | None
    ) -> None:
        with pytest.raises(error) if error else nullcontext(), transaction.atomic():
            if error:
                raise error
            connection.close()
        thread = start_thread(self.write)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def test_reading_waits_for_nobody(self) -> None:
        found: list[int] = []
        with transaction.atomic():
            self.write()
            thread = start_thread(lambda: found.append(LaneTurn.objects.count()))
            thread.join(WAIT_SECONDS)

        assert found == [0]

    def test_writer_that_knows_no_turns_is_waited_for_and_told_of(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
        connection.cursor().execute("PRAGMA busy_timeout = 10")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError), transaction.atomic():
            pass
        other.execute("ROLLBACK")
        other.close()

        self.write()
        connection.close()

    def test_request_beside_a_process_suspended_in_a_transaction_is_asked_to_come_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = "\n".join((
            "import os, signal, sqlite3, sys",
            "database = sqlite3.connect(sys.argv[1], isolation_level=None)",
            "database.execute('BEGIN IMMEDIATE')",
            "print(flush=True)",
            "os.kill(os.getpid(), signal.SIGSTOP)",
        ))  # fmt: skip
        user, voice = make_user("ada"), make_voice("Ada")
        bearer = {"Authorization": f"Bearer {create_key(user, 'k')[1]}"}
        job = {"text": "An ox.", "voice": voice.name}
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
        monkeypatch.setattr("synth.accounts.access._unnoted_until", 0.0)
        connection.close()

        stopped = start_other(Path(connection.settings_dict["NAME"]), Path("never"), code)
        try:
            answers = [
                Client().post("/api/v1/jobs", job, content_type="application/json", headers=bearer),
                Client().get("/api/v1/jobs", headers=bearer),
            ]
        finally:
            stopped.kill()
            stopped.communicate(timeout=WAIT_SECONDS)

        assert [answer.status_code for answer in answers] == [503, 200]
        assert answers[0].json()["code"] == "database_unavailable"
        assert int(answers[0]["Retry-After"]) > 0
        assert not RenderJob.objects.exists()
        again = Client().post("/api/v1/jobs", job, content_type="application/json", headers=bearer)
        assert again.status_code == 202
