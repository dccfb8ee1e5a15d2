"""Count in memory and add to the shared counters now and then, so that a lookup costs no write."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from voices import transitions

logger = logging.getLogger(__name__)


class Counters:
    """Gather how codes were found in this process; safe to use from every thread."""

    def __init__(self) -> None:
        self._pending: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Count one memory_hit or storage_hit."""
        with self._lock:
            self._pending[name] += 1

    def flush(self) -> None:
        """Add what was gathered to the database.

        Raises:
            OperationalError, InterfaceError: the database is away; nothing is forgotten.
        """
        with self._lock:
            pending, self._pending = self._pending, Counter()
        for name in list(pending):
            try:
                transitions.count(name, pending[name])
            except Exception:
                with self._lock:
                    self._pending.update(pending)
                raise
            logger.info("codes found: %s=+%d", name, pending.pop(name))
