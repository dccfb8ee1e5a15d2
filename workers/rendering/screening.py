"""Screen what was rendered, unless the checkpoint's card says that its takes cannot be judged."""

from __future__ import annotations

from django.conf import settings

from synth.contract import RenderSpec, SegmentAudio
from synth.engine import EngineError
from synth.models import Take
from ttsweb.pages.card import CardError, read_card
from workers.rendering.quality import screen


class CardInvalidError(EngineError):
    """The checkpoint's card became unreadable, so nobody knows whether to screen."""

    code = "checkpoint_card_invalid"


def screen_take(take: Take, spec: RenderSpec, rendered: SegmentAudio) -> None:
    """Write what the screen finds into a take whose row is still to be written.

    Where the card has the screen off, the take's score stays None.

    Raises:
        CardInvalidError: the card cannot be read.
    """
    try:
        is_on = read_card(settings.CHECKPOINT).quality_screen
    except CardError as error:
        raise CardInvalidError(str(error)) from error
    if not is_on:
        return
    quality = screen(spec, rendered)
    take.quality_score, take.quality_flags = quality.score, quality.flags
    take.measures = take.measures | quality.measures
