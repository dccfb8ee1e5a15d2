"""Keep account of the claims that this process holds, to renew them and to hand them back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ttsweb.leases import Claim
from ttsweb.work import Kind


class WorkUnwantedError(Exception):
    """The row behind a claim is gone, or is not ours any more: nobody waits for the result."""


@dataclass(slots=True, eq=False)
class HeldClaim:
    """One claim of ours; `is_lost`: the row is not ours any more, its result is not wanted.

    Of a segment also its job and that job's priority, and, where somebody listens, the id that its
    take is to have.
    """

    kind: Kind
    pk: Any
    token: uuid.UUID
    job_id: uuid.UUID | None = None
    priority: int = 0
    future: Future[Any] | None = None
    is_lost: bool = False
    take_id: uuid.UUID | None = None

    @property
    def fence(self) -> Claim:
        """Return what fences writes to the row."""
        return Claim(self.pk, self.token)

    def abandon(self) -> None:
        """Stop the work behind a claim that is not ours any more."""
        self.is_lost = True
        self.stop()

    def check(self) -> None:
        """Pass while the work is wanted.

        Raises:
            WorkUnwantedError: the claim is not ours any more.
        """
        if self.is_lost:
            raise WorkUnwantedError

    def stop(self) -> None:
        """Ask the engine to drop the request, if one is running."""
        if self.future is not None:
            self.future.cancel()


class HeldClaims:
    """Hold this process's claims; safe to use from every thread."""

    def __init__(self) -> None:
        self._claims: set[HeldClaim] = set()
        self._unrendered: set[HeldClaim] = set()  # segments that the engine has still to do
        self._lock = threading.Lock()

    def add(
        self,
        kind: Kind,
        pk: Any,
        token: uuid.UUID,
        *,
        job_id: uuid.UUID | None = None,
        priority: int = 0,
    ) -> HeldClaim:
        """Note a claim just won; from now on it is renewed."""
        claim = HeldClaim(kind, pk, token, job_id, priority)
        with self._lock:
            self._claims.add(claim)
            if kind is Kind.SEGMENT:
                self._unrendered.add(claim)
        return claim

    def drop(self, claim: HeldClaim) -> None:
        """Forget a claim that was settled or is left to expire; dropping twice is harmless."""
        with self._lock:
            self._claims.discard(claim)
            self._unrendered.discard(claim)

    def note_rendered(self, claim: HeldClaim) -> None:
        """Note that the engine has done with a segment, which is held until it is settled."""
        with self._lock:
            self._unrendered.discard(claim)

    def unrendered(self) -> list[HeldClaim]:
        """Return the segments that the engine has still to do, or is doing."""
        with self._lock:
            return list(self._unrendered)

    @contextmanager
    def holding(self, kind: Kind, pk: Any, token: uuid.UUID) -> Iterator[HeldClaim]:
        """Hold a claim for the length of a `with` block."""
        claim = self.add(kind, pk, token)
        try:
            yield claim
        finally:
            self.drop(claim)

    def of(self, *kinds: Kind) -> list[HeldClaim]:
        """Return the claims of some kinds at this moment."""
        with self._lock:
            return [claim for claim in self._claims if claim.kind in kinds]

    def count(self, *kinds: Kind) -> int:
        """Return how many claims of some kinds are held."""
        return len(self.of(*kinds))

    def count_of_job(self, job_id: uuid.UUID | None) -> int:
        """Return how many segments of a job are held."""
        with self._lock:
            return sum(
                claim.kind is Kind.SEGMENT and claim.job_id == job_id for claim in self._claims
            )

    def has_interactive(self) -> bool:
        """Return whether a segment or an export is held that somebody waits for."""
        with self._lock:
            return any(
                claim.priority == 0
                for claim in self._claims
                if claim.kind in (Kind.SEGMENT, Kind.EXPORT)
            )

    def __len__(self) -> int:
        with self._lock:
            return len(self._claims)
