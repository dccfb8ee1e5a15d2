"""Writers of an SQLite file go one after the other, whichever process or thread they are in."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction

from synth.models import LaneTurn
from ttsweb.sqlite.base import WriteTurns

WAIT_SECONDS = 60.0
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


def test_threads_write_one_at_a_time_in_the_order_in_which_they_came(path: Path) -> None:
    turns, order = WriteTurns(path), []
    assert turns.acquire(WAIT_SECONDS)
    threads = []
    for number in range(5):

        def write(number: int = number) -> None:
            assert turns.acquire(WAIT_SECONDS)
            order.append(number)
            turns.release()

        threads.append(threading.Thread(target=write))
        threads[-1].start()
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
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), str(over)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    try:
        other.stdout.readline()  # it writes
        for _ in range(10):
            assert turns.acquire(WAIT_SECONDS)
            turns.release()
    finally:
        over.touch()
    taken = int(other.communicate(timeout=WAIT_SECONDS)[0])

    # Each of ours may wait for the one that writes and, once it looks, for one more.
    assert taken <= 10 * 3


def test_turn_of_a_killed_process_is_free_again(path: Path) -> None:
    code = OTHER.replace("time.sleep(0.02)", "time.sleep(3600)")
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path), os.devnull + "-not"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    other.stdout.readline()
    turns = WriteTurns(path)
    assert not turns.acquire(0.05)
    other.kill()
    other.wait(WAIT_SECONDS)

    assert turns.acquire(WAIT_SECONDS)


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

    def in_another_thread(self) -> threading.Thread:
        def write() -> None:
            self.write()
            connection.close()

        thread = threading.Thread(target=write)
        thread.start()
        return thread

    def test_statement_by_itself_waits_for_a_transaction(self) -> None:
        with transaction.atomic():
            thread = self.in_another_thread()
            thread.join(0.2)
            assert thread.is_alive()
            assert not LaneTurn.objects.exists()
        thread.join(WAIT_SECONDS)
        assert LaneTurn.objects.count() == 1

    @pytest.mark.parametrize("error", [ValueError, OperationalError])
    def test_broken_off_transaction_keeps_nobody_waiting(self, error: type[Exception]) -> None:
        with pytest.raises(error), transaction.atomic():
            raise error
        thread = self.in_another_thread()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def test_connection_that_is_closed_in_a_transaction_keeps_nobody_waiting(self) -> None:
        with transaction.atomic():
            connection.close()
        thread = self.in_another_thread()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def test_reading_waits_for_nobody(self) -> None:
        found: list[int] = []

        def read() -> None:
            found.append(LaneTurn.objects.count())
            connection.close()

        with transaction.atomic():
            self.write()
            thread = threading.Thread(target=read)
            thread.start()
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
