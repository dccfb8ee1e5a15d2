"""Tell a database that is away for a moment from one that refuses what we ask of it."""

from __future__ import annotations

import sqlite3

from django.db import InterfaceError, OperationalError

DATABASE_AWAY = (OperationalError, InterfaceError)
AWAY_CODE = "database_unavailable"
AWAY_SENTENCE = (
    "The database does not answer at the moment. Send the request again after `Retry-After` "
    "seconds; with an `Idempotency-Key` nothing is made twice."
)
AWAY_RETRY_SECONDS = 2


def is_database_away(error: BaseException | None) -> bool:
    """Return whether the same statement may well pass in a moment: no connection, or it is locked.

    SQLite has the same class of error for a table that is not there.
    """
    if not isinstance(error, DATABASE_AWAY):
        return False
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    return not isinstance(cause, sqlite3.OperationalError) or code != sqlite3.SQLITE_ERROR
