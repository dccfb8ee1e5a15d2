"""Refuse changes of voices that belong to somebody else."""

from __future__ import annotations

from rest_framework.request import Request

from ttsweb.http.api import ApiProblem
from voices.access import may_change
from voices.models import Voice


def check_own(request: Request, voice: Voice) -> None:
    """Let a voice's owner and superusers change a voice that the user of this request sees.

    Raises:
        ApiProblem: 403 voice_not_yours.
    """
    if may_change(request.user, voice):
        return
    who = "its owner or a superuser" if voice.owner_id is not None else "a superuser"
    raise ApiProblem(
        403,
        "voice_not_yours",
        f"You may speak with the voice {voice.name!r}, but only {who} can change it; a "
        "superuser's API key also needs the scope 'admin'. Make a voice of your own instead.",
    )
