"""Remember which voices the engine was given, to free what it keeps of those that are deleted.

The engine keeps what the segments of a voice begin with alike. When a voice goes, segments that
were given to the engine before still end well, and may make the engine keep it once more: it is
freed at once, and again when the last of them has ended.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from synth.contract import Reference
from workers.process.held_claims import HeldClaim

MOST_VOICES = 1000
References = tuple[Reference, ...]
Forget = Callable[[References], None]


class SpokenVoices:
    """Hold the references of voices by the fingerprints of their clips; safe from every thread.

    At most `MOST_VOICES`, least recently spoken out first: the engine has long let go of those.
    """

    def __init__(self) -> None:
        self._spoken: OrderedDict[tuple[str, ...], References] = OrderedDict()
        self._leaving: list[tuple[References, set[HeldClaim]]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._spoken)

    def note(self, clips: tuple[str, ...], references: References) -> None:
        """Note references that the engine is given, and the fingerprints of all their clips."""
        if not clips:
            return
        with self._lock:
            self._spoken[clips] = references
            self._spoken.move_to_end(clips)
            if len(self._spoken) > MOST_VOICES:
                self._spoken.popitem(last=False)

    def forget(
        self, evicted: Iterable[str], unrendered: Iterable[HeldClaim], forget: Forget
    ) -> None:
        """Call `forget` for the references with an evicted clip, and for those that left before.

        Call it often. `unrendered` are the segments that the engine has still to do.
        """
        waiting = set(unrendered)
        with self._lock:
            gone = set(evicted)
            keys = [key for key in self._spoken if not gone.isdisjoint(key)] if gone else []
            found = [self._spoken.pop(key) for key in keys]
            ended = [one for one, claims in self._leaving if not claims & waiting]
            self._leaving = [(one, claims) for one, claims in self._leaving if claims & waiting]
            self._leaving += [(one, waiting) for one in found if waiting]
        for references in [*found, *ended]:
            forget(references)
