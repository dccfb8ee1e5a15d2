"""Keep clips' codes in memory: bounded in bytes and clips, least recently used out first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from synth.contract import CodesArray

# Clip fingerprint, codec fingerprint, tenant: content, so nothing goes stale; and nobody gets codes
# that another tenant has imported for the same clip.
CodesKey = tuple[str, ...]


class CodesCache:
    """Hold codes int16 [K, T] by clip and codec fingerprint; safe to use from every thread.

    `max_bytes` or `max_clips` of 0 keep nothing. Arrays are shared: callers must not write to them.
    """

    def __init__(self, *, max_bytes: int, max_clips: int) -> None:
        self.max_bytes, self.max_clips = max_bytes, max_clips
        self._entries: OrderedDict[CodesKey, CodesArray] = OrderedDict()
        self._num_bytes = 0
        self._epoch = 0
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Return a number that moves with every eviction; see `put`."""
        return self._epoch

    @property
    def num_bytes(self) -> int:
        """Return the size of all codes held."""
        return self._num_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CodesKey) -> CodesArray | None:
        """Return the codes, which become the most recently used, or None."""
        with self._lock:
            codes = self._entries.get(key)
            if codes is not None:
                self._entries.move_to_end(key)
            return codes

    def put(self, key: CodesKey, codes: CodesArray, *, epoch: int) -> bool:
        """Keep codes that were looked up since `epoch`; return whether they are kept.

        After an eviction meanwhile they are not: it may have been theirs.
        """
        with self._lock:
            if epoch != self._epoch or codes.nbytes > self.max_bytes or not self.max_clips:
                return False
            self._remove(key)
            self._entries[key] = codes
            self._num_bytes += codes.nbytes
            while self._num_bytes > self.max_bytes or len(self._entries) > self.max_clips:
                self._remove(next(iter(self._entries)))
            return True

    def evict(self, clip_fingerprint: str) -> int:
        """Drop a clip's codes in every codec; return how many entries went."""
        with self._lock:
            self._epoch += 1
            keys = [key for key in self._entries if key[0] == clip_fingerprint]
            for key in keys:
                self._remove(key)
            return len(keys)

    def _remove(self, key: CodesKey) -> None:
        codes = self._entries.pop(key, None)
        if codes is not None:
            self._num_bytes -= codes.nbytes
