"""Name what every claimed row has in common."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

WORKER_LOST_MESSAGE = (
    "Every worker that took this segment stopped before it was done. Look at the workers' "
    "logs, then retry the job."
)

# A segment whose worker ended this often was always held by others too; from then on it runs alone.
LOSSES_IN_COMPANY = 2


@dataclass(frozen=True)
class Claim:
    """A held row: its primary key and the token that fences writes to it."""

    pk: Any
    token: uuid.UUID


@dataclass(frozen=True)
class SegmentClaim(Claim):
    """A held segment, with its job and that job's priority."""

    job_id: uuid.UUID
    priority: int
