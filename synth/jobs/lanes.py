"""Name whose share of the workers a job takes: its API key's, else its user's."""

from __future__ import annotations

from synth.models import ApiKey

SYSTEM = "system"
_MOST_CHARS = 40  # of the column


def lane_of(owner_id: int | None, api_key: ApiKey | None) -> str:
    """Return the lane of a job: `key:<id>`, `user:<id>`, or that of the installation itself.

    Lanes of one priority class get the same from the workers, however much each has queued.
    """
    if api_key is not None:
        return f"key:{api_key.pk.hex}"[:_MOST_CHARS]
    return SYSTEM if owner_id is None else f"user:{owner_id}"
