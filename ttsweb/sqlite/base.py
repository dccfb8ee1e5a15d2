"""Django's database backend for SQLite, whose writers wait in a line: see `write_turns`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

from ttsweb.sqlite.write_turns import WriteTurns, turns_of

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
