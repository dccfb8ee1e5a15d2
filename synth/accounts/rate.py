"""Count the requests of an API key per minute, over all web processes.

The count is two columns of the key's row: all processes share the database, while not every
installation has a cache that they share. So that not every request is a write, a process takes
requests in blocks of a fiftieth of the limit and hands them out from memory: fewer than 100 writes
a minute for each key, whatever the limit. Never more requests pass than the limit says; what a
process took and did not use is lost to the others until the minute is over, at most 2 % for each
further process. Below 100 a minute a block is one request, and the count exact. A key that is used
up is refused from memory. Keys without this limit cost nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass

from django.db.models import F

from synth.accounts.limits import KeyLimitError
from synth.models import ApiKey
from ttsweb.counted import counted

BLOCKS_PER_MINUTE = 50
_MOST_REMEMBERED = 10_000


@dataclass
class _Minute:
    """What this process knows of a key in one minute: requests it may pass, and if any are left."""

    number: int
    limit: int
    left: int = 0
    is_used_up: bool = False


_minutes: dict[uuid.UUID, _Minute] = {}
_lock = threading.Lock()


def count_request(key: ApiKey) -> None:
    """Count one request of a key that has just been read.

    Raises:
        KeyLimitError: key_limit_requests, 429, with the seconds to the next minute.
    """
    limit = key.max_requests_per_minute
    if limit is None:
        return
    now = time.time()
    minute = int(now // 60)
    if _use_one(key.pk, minute, limit):
        return
    taken = 0 if _is_used_up(key.pk, minute) else _take_block(key.pk, minute, limit)
    if taken:
        _remember(key.pk, minute, left=taken - 1)  # one of them is this request
        return
    _remember(key.pk, minute, is_used_up=True)
    raise KeyLimitError(
        "key_limit_requests",
        f"This API key has sent its {counted(limit, 'request')} of this minute; wait for "
        "the next minute.",
        retry_after=60 - int(now % 60),
    )


def forget_counts() -> None:
    """Forget what this process took, as a new process would begin."""
    with _lock:
        _minutes.clear()


def _use_one(key: uuid.UUID, minute: int, limit: int) -> bool:
    """Use one of the requests that were taken for this process; a changed limit starts anew."""
    with _lock:
        known = _minutes.get(key)
        if known is None or (known.number, known.limit) != (minute, limit):
            if len(_minutes) >= _MOST_REMEMBERED:
                _minutes.clear()
            _minutes[key] = _Minute(minute, limit)
            return False
        if known.left == 0:
            return False
        known.left -= 1
        return True


def _is_used_up(key: uuid.UUID, minute: int) -> bool:
    with _lock:
        known = _minutes.get(key)
        return known is not None and known.number == minute and known.is_used_up


def _remember(key: uuid.UUID, minute: int, *, left: int = 0, is_used_up: bool = False) -> None:
    """Add what the database gave, unless the minute has ended meanwhile."""
    with _lock:
        known = _minutes.get(key)
        if known is not None and known.number == minute:
            known.left += left
            known.is_used_up = known.is_used_up or is_used_up


def _take_block(key: uuid.UUID, minute: int, limit: int) -> int:
    """Take requests of this minute in the database and return how many; 0 when none are left.

    A row that another host's clock has brought into the next minute is counted there.
    """
    row = ApiKey.objects.filter(pk=key)
    for block in dict.fromkeys((max(1, limit // BLOCKS_PER_MINUTE), 1)):
        if block > limit:
            return 0
        this_minute = row.filter(rate_minute__gte=minute, rate_taken__lte=limit - block)
        if this_minute.update(rate_taken=F("rate_taken") + block):
            return block
        earlier = row.filter(rate_minute__lt=minute)
        if earlier.update(rate_minute=minute, rate_taken=block):
            return block
    return 0
