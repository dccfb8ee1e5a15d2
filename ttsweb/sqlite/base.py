"""Django's database backend for SQLite, whose writers wait in a line.

SQLite allows one writer at a time. Who comes second sleeps, up to 100 ms between two looks, so that
under load most of a write's time is sleep, and who has just ended is the next one again. Here the
threads of a process stand in a line, and the first of each process takes two locks of a file, one
after the other: the place behind the writer, then the writer's own. So a process that has just
written cannot overtake another one that waits. The kernel drops the locks of a process that ends.

The order is a courtesy; that only one writes is SQLite's own doing, with or without these locks. So
a process that was suspended with one of them, most likely as it stood in the line, keeps the others
waiting for a second, once: from then on they pass it, until it is seen to have gone on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

LOOK_SECONDS = 0.001  # between two looks of the one thread of a process that waits for others
COURTESY_SECONDS = 1.0  # a hundred transactions; who lets others wait for longer is passed
_NEXT, _WRITER = 0, 1  # bytes of the file, each with a lock


class WriteTurns:
    """Hand out turns to write to one database; one object for all threads of a process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        self._file: int | None = None
        self._passed: set[int] = set()  # locks whose holders did not move

    def acquire(self, seconds: float) -> bool:
        """Wait for a turn; False when none came in so many seconds."""
        until = time.monotonic() + seconds
        if not self._take_place(seconds):
            return False
        try:
            is_ours = self._lock_file(until)
        except OSError:  # a folder that cannot be written: SQLite says so, and better
            return True
        if not is_ours:
            self._give_place()
        return is_ours

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _WRITER)
        self._give_place()

    def _take_place(self, seconds: float) -> bool:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return True
            ours = threading.Lock()
            ours.acquire()
            self._waiting.append(ours)
        if ours.acquire(timeout=max(0.0, seconds)):
            return True
        with self._guard:
            if ours in self._waiting:
                self._waiting.remove(ours)
                return False
        return True  # it was handed to us in this moment

    def _give_place(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False

    def _lock_file(self, until: float) -> bool:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not self._lock(_NEXT, until):
            return False
        try:
            return self._lock(_WRITER, until)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _NEXT)

    def _lock(self, place: int, until: float) -> bool:
        """Take a lock, or pass whoever does not give it; False when the time is over."""
        assert self._file is not None
        patience = time.monotonic() + (0.0 if place in self._passed else COURTESY_SECONDS)
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                self._passed.discard(place)
                return True
            except (BlockingIOError, PermissionError):
                now = time.monotonic()
                if now > until:
                    return False
                if now >= patience:
                    self._passed.add(place)
                    return True
            time.sleep(LOOK_SECONDS)


_turns: dict[Path, WriteTurns] = {}
_turns_guard = threading.Lock()


def turns_of(database: Path) -> WriteTurns:
    """Return the turns of a database file; they are the same for every connection to it."""
    path = database.resolve()
    with _turns_guard:
        if path not in _turns:
            _turns[path] = WriteTurns(path.with_name(f"{path.name}-turns"))
        return _turns[path]


DEFAULT_SECONDS = 5.0  # sqlite3's own
_READING = ("SELECT", "PRAGMA", "EXPLAIN", "BEGIN", "SAVEPOINT")


class DatabaseWrapper(base.DatabaseWrapper):
    """Take a turn before a transaction, or before a statement that is one by itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turn: WriteTurns | None = None  # that we hold
        self.execute_wrappers.append(self._execute_in_turn)

    def _start_transaction_under_autocommit(self) -> None:
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]  # not in the stubs
        except BaseException:
            self._end_turn()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]  # not in the stubs
        self._end_turn()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # not in the stubs
        finally:
            self._end_turn()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # not in the stubs
        finally:
            self._end_turn()

    def _execute_in_turn(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        verb = sql.lstrip()[:9].upper()
        if self._turn is not None or self.in_atomic_block or verb.startswith(_READING):
            return execute(sql, params, many, context)
        self._take_turn()
        try:
            return execute(sql, params, many, context)
        finally:
            self._end_turn()

    def _take_turn(self) -> None:
        if self._turn is not None or self.is_in_memory_db():
            return
        turns = turns_of(Path(self.settings_dict["NAME"]))
        if not turns.acquire(self.settings_dict["OPTIONS"].get("timeout", DEFAULT_SECONDS)):
            raise OperationalError("database is locked")
        self._turn = turns

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()
