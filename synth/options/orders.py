"""Say what is to be rendered and how, and refuse what does not go together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from synth.jobs.rejections import SubmitRejectedError, deadline_past
from synth.models import RenderJob
from synth.options.file_options import check_file_options
from synth.options.url_references import UrlClip
from synth.webhooks.urls import WebhookUrlError, check_webhook_url
from voices.models import Voice
from voices.submit import NewClip


@dataclass(frozen=True)
class Order:
    """Say what is to be rendered, and how.

    `voice` is a voice, its id or its name; `reference` is a clip that comes with the job. Both are
    those of speaker 0; `voices` and `references` give several by the numbers of `<|speaker:N|>`.
    Each speaker has exactly one. Sampling values that are None are taken from the checkpoint's
    card. `seed` is in [0, 2**63), `format` a key of FORMATS, `speed` in [0.25, 4] the pace of the
    file. `sample_rate` is in Hz, `bit_rate` in bits per second, `loudness` in LUFS, each None for
    the usual one; `pauses` are in ms by name. `lexicons` are ids or names, `lexicon` entries of
    this job alone. `retention_seconds` is 0 for a job that is kept, None for what the settings say.
    """

    text: str
    voice: Voice | str | None = None
    reference: NewClip | UrlClip | None = None
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    format: str = "wav"
    speed: float = 1.0
    priority: RenderJob.Priority = RenderJob.Priority.INTERACTIVE
    voices: Mapping[int, Voice | str] = field(default_factory=dict)
    references: Mapping[int, NewClip | UrlClip] = field(default_factory=dict)
    language: str = ""
    sample_rate: int | None = None
    bit_rate: int | None = None
    loudness: float | None = None
    pauses: Mapping[str, int] = field(default_factory=dict)
    normalise: bool = False
    lexicons: Sequence[str] = ()
    lexicon: Sequence[Mapping[str, Any]] = ()
    max_retakes: int | None = None
    deadline_at: dt.datetime | None = None
    retention_seconds: int | None = None
    webhook_url: str = ""
    live: bool = False


def check_options(order: Order) -> None:
    """Refuse options that do not go together, or come too late.

    Raises:
        SubmitRejectedError: sample_rate_unfit, bit_rate_unfit, live_not_possible, deadline_past,
            and for the webhook url_invalid, url_scheme, url_private_address.
    """
    check_file_options(order.format, order.sample_rate, order.bit_rate)
    if order.live and order.speed != 1.0:
        raise SubmitRejectedError(
            400,
            "live_not_possible",
            f"A job with the speed {order.speed:g} cannot be heard while it is rendered, as "
            "the speed changes only the finished file. Leave `live` out, or set `speed` to "
            "1.",
            attr="live",
        )
    if order.deadline_at is not None and order.deadline_at <= timezone.now():
        raise deadline_past()
    if order.webhook_url:
        try:
            check_webhook_url(order.webhook_url)
        except WebhookUrlError as error:
            raise SubmitRejectedError(400, error.code, str(error), attr="webhook") from error


def speakers_of(
    order: Order,
) -> tuple[dict[int, Voice | str], dict[int, NewClip | UrlClip]]:
    """Return voices and clips by speaker.

    Raises:
        SubmitRejectedError: voice_required, voice_ambiguous.
    """
    if order.voice and order.voices:
        raise _ambiguous("Send either `voice`, which is speaker 0, or `voices`, not both.", "voice")
    if order.reference and order.references:
        raise _ambiguous("Send either `reference` or `references`, not both.", "reference")
    voices = {0: order.voice} if order.voice else dict(order.voices)
    references = {0: order.reference} if order.reference else dict(order.references)
    both = sorted(voices.keys() & references.keys())
    if both and order.voice and order.reference:
        raise _ambiguous("Send either a voice or a reference, not both.", "voice")
    if both:
        raise _ambiguous(
            f"Speaker {both[0]} has both a voice and a reference; send only one of them.", "voices"
        )
    if not voices and not references:
        raise SubmitRejectedError(
            400, "voice_required", "Send a voice (its id or name) or a reference.", attr="voice"
        )
    return voices, references


def _ambiguous(sentence: str, attr: str) -> SubmitRejectedError:
    return SubmitRejectedError(400, "voice_ambiguous", sentence, attr=attr)
