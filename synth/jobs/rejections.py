"""Say why a job is not taken, in one form for the API, the admin and the commands."""

from __future__ import annotations

from synth.text.normalise import TextRejectedError
from ttsweb.refusals import SubmitRejectedError as SubmitRejectedError
from voices.clip_checks import ClipRejectedError


def text_rejected(error: TextRejectedError) -> SubmitRejectedError:
    """Return the error for a text that cannot be rendered."""
    return SubmitRejectedError(error.code, error.message, attr="text")


def clip_rejected(error: ClipRejectedError) -> SubmitRejectedError:
    """Return the error for a reference that is not taken."""
    return SubmitRejectedError(error.code, str(error), attr="reference")


def deadline_past() -> SubmitRejectedError:
    """Return the error for a deadline that has passed already."""
    return SubmitRejectedError(
        "deadline_past", "The deadline is in the past; send a later one, or none.", attr="deadline"
    )
