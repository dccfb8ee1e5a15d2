"""Say what is to be rendered and how; refuse what does not go together, fetch clips by URL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.utils import timezone

from synth.formats import BOOK_FORMATS, LOSSY
from synth.jobs.options import JobOptions
from synth.webhooks import check_webhook_url
from ttsweb.http.guarded_fetch import FetchError, fetch
from ttsweb.refusals import SubmitRejectedError
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import Voice
from voices.submit import NewClip


@dataclass(frozen=True)
class Order(JobOptions):
    """Say what is to be rendered, and how: the options of a job are its as well.

    `voice` is a voice, its id or its name; `reference` is a clip that comes with the job. Both are
    those of speaker 0; `voices` and `references` give several by the numbers of `<|speaker:N|>`.
    Each speaker has exactly one.
    """

    text: str
    voice: Voice | str | None = None
    reference: NewClip | UrlClip | None = None
    voices: Mapping[int, Voice | str] = field(default_factory=dict)
    references: Mapping[int, NewClip | UrlClip] = field(default_factory=dict)


def check_options(order: Order) -> None:
    """Refuse options that do not go together, or come too late.

    Raises:
        SubmitRejectedError: sample_rate_unfit, bit_rate_unfit, deadline_past, and for the
            webhook url_invalid, url_scheme, url_private_address.
    """
    check_file_options(order.format, order.sample_rate, order.bit_rate)
    if order.deadline_at is not None and order.deadline_at <= timezone.now():
        raise deadline_past()
    if order.webhook_url:
        check_webhook_url(order.webhook_url)


def deadline_past() -> SubmitRejectedError:
    """Return the error for a deadline that has passed already."""
    return SubmitRejectedError(
        "deadline_past", "The deadline is in the past; send a later one, or none.", attr="deadline"
    )


def check_file_options(form: str, sample_rate: int | None, bit_rate: int | None) -> None:
    """Refuse a sample rate (Hz) or a bit rate (bits per second) that a format cannot have.

    Raises:
        SubmitRejectedError: sample_rate_unfit or bit_rate_unfit, which name those that fit.
    """
    rates, bits = BOOK_FORMATS[form].sample_rates, BOOK_FORMATS[form].bit_rates
    if sample_rate is not None and sample_rate not in rates:
        sentence = (
            f"The format {form} does not support a sample rate of {sample_rate} Hz; choose one of "
            f"{', '.join(map(str, rates))}."
        )
        raise SubmitRejectedError("sample_rate_unfit", sentence, attr="sample_rate")
    if bit_rate is None:
        return
    if bits is None:
        sentence = (
            f"The format {form} is lossless and has no bit rate. Leave bit_rate out, or choose "
            f"one of {', '.join(LOSSY)}."
        )
        raise SubmitRejectedError("bit_rate_unfit", sentence, attr="bit_rate")
    most = bits.most(sample_rate or max(rates))
    steps = [one for one in bits.steps if one <= most]
    if bit_rate in steps or (not steps and bits.low <= bit_rate <= most):
        return
    of_rate = f" at {sample_rate} Hz" if sample_rate is not None else ""
    expected = f"one of {', '.join(map(str, steps))}" if steps else f"{bits.low} to {most}"
    sentence = (
        f"The format {form}{of_rate} does not support {bit_rate} bits per second; choose "
        f"{expected}."
    )
    raise SubmitRejectedError("bit_rate_unfit", sentence, attr="bit_rate")


def speakers_of(order: Order) -> tuple[dict[int, Voice | str], dict[int, NewClip | UrlClip]]:
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
        sentence = f"Speaker {both[0]} has both a voice and a reference; send only one of them."
        raise _ambiguous(sentence, "voices")
    if not voices and not references:
        sentence = "Send a voice (its id or name) or a reference."
        raise SubmitRejectedError("voice_required", sentence, attr="voice")
    return voices, references


def _ambiguous(sentence: str, attr: str) -> SubmitRejectedError:
    return SubmitRejectedError("voice_ambiguous", sentence, attr=attr)


FETCH_SECONDS = 10.0  # that a download may take, redirects included: its request waits meanwhile
MAX_URLS_PER_REQUEST = 32
MAX_URL_CHARS = 2000


@dataclass(frozen=True)
class UrlClip:
    """A clip that is to be fetched, and what is said in it (checked already)."""

    url: str
    transcript: str


def is_url(text: str) -> bool:
    """Say whether a text begins as a URL that could be fetched."""
    return text[:8].lower().startswith(("http://", "https://"))


class UrlClips:
    """Fetch the clips of one request; each URL once, and not many of them."""

    def __init__(self) -> None:
        self._found: dict[str, NewClip | SubmitRejectedError] = {}

    def get(self, clip: UrlClip, attr: str) -> NewClip:
        """Return a clip with its bytes.

        Raises:
            SubmitRejectedError: url_references_off, url_* (it cannot be fetched), too_many_urls,
                clip_*.
        """
        if not settings.URL_REFERENCES:
            raise urls_are_off().at(attr)
        if clip.url not in self._found:
            if len(self._found) >= MAX_URLS_PER_REQUEST:
                sentence = (
                    f"A request may have at most {MAX_URLS_PER_REQUEST} clips by URL. Make "
                    "voices of the clips, or send several requests."
                )
                raise SubmitRejectedError("too_many_urls", sentence, attr=attr)
            try:
                self._found[clip.url] = _fetch(clip)
            except SubmitRejectedError as error:
                self._found[clip.url] = error
        found = self._found[clip.url]
        if isinstance(found, SubmitRejectedError):
            raise found.at(attr)
        return replace(found, transcript=clip.transcript)


def urls_are_off() -> SubmitRejectedError:
    """Return the error for a URL where none is fetched."""
    return SubmitRejectedError(
        "url_references_off",
        "This server does not fetch URLs. Send the clip as a file or a data URL, or ask the "
        "administrator to turn on TTS_URL_REFERENCES.",
    )


def _fetch(clip: UrlClip) -> NewClip:
    try:
        found = fetch(
            clip.url,
            max_bytes=settings.MAX_CLIP_BYTES,
            seconds=FETCH_SECONDS,
            allow_private=settings.ALLOW_PRIVATE_URLS,
        )
        container = check_clip(found.content)
    except (FetchError, ClipRejectedError) as error:
        raise SubmitRejectedError(error.code, str(error)) from error
    name = ""
    with suppress(ValueError):  # the last part of the path, as far as it can be a file's name
        name = unquote(urlsplit(found.url).path.rpartition("/")[2], errors="replace")
    name = "".join(letter for letter in name if letter.isprintable())[:200]
    return NewClip(clip.transcript, name, content=found.content, container=container)
