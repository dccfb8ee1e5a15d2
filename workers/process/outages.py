"""Tell what is nobody's fault and passes: a full disk, a database or storage that is away."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.db import connection

from ttsweb.http.database_errors import DATABASE_AWAY as DATABASE_AWAY

logger = logging.getLogger(__name__)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
RETRY_SECONDS = 0.5
PATIENT_LEASES = 10

Result = TypeVar("Result")


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed because there is no room for it."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_outage(error: BaseException) -> bool:
    """Return whether the same work may well pass later, so that no attempt is to be spent on it.

    A missing file is not an outage: waiting brings it back only where a folder was not mounted.
    """
    if isinstance(error, DATABASE_AWAY):
        return True
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)


def outlast(write: Callable[[], Result], *, seconds: float | None = None) -> Result:
    """Run a short database step again and again while the database is away.

    What was rendered is worth more than the wait; the step is fenced, so a late one does no harm.

    Args:
        seconds: after so long it gives up; None is ten leases.

    Raises:
        OperationalError, InterfaceError: the database stayed away.
    """
    wait = PATIENT_LEASES * settings.LEASE_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + wait
    while True:
        try:
            return write()
        except DATABASE_AWAY as error:
            connection.close()
            if time.monotonic() > deadline:
                raise
            logger.warning("the database does not answer, trying again: %s", type(error).__name__)
            time.sleep(RETRY_SECONDS)
