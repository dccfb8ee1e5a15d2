"""Fetch the clips that a request gives by URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from django.conf import settings

from synth.jobs.rejections import SubmitRejectedError
from ttsweb.http.guarded_fetch import FetchError, fetch
from voices.clip_checks import ClipRejectedError, check_clip
from voices.submit import NewClip

FETCH_SECONDS = 10.0  # that a download may take, redirects included: its request waits meanwhile
MAX_URLS_PER_REQUEST = 32
MAX_URL_CHARS = 2000
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True)
class UrlClip:
    """A clip that is to be fetched, and what is said in it (checked already)."""

    url: str
    transcript: str


def is_url(text: str) -> bool:
    """Say whether a text begins as a URL that could be fetched."""
    return _URL.match(text) is not None


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
                raise SubmitRejectedError(
                    "too_many_urls",
                    f"A request may have at most {MAX_URLS_PER_REQUEST} clips by URL. Make "
                    "voices of the clips, or send several requests.",
                    attr=attr,
                )
            try:
                self._found[clip.url] = _fetch(clip)
            except SubmitRejectedError as error:
                self._found[clip.url] = error
        found = self._found[clip.url]
        if isinstance(found, SubmitRejectedError):
            raise found.at(attr)
        return NewClip(
            clip.transcript, found.filename, content=found.content, container=found.container
        )


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
    except FetchError as error:
        raise SubmitRejectedError(error.code, str(error)) from error
    try:
        container = check_clip(found.content)
    except ClipRejectedError as error:
        raise SubmitRejectedError(error.code, str(error)) from error
    return NewClip(
        clip.transcript, _file_name(found.url), content=found.content, container=container
    )


def _file_name(url: str) -> str:
    """Return the last part of a URL's path, as far as it can be a file's name."""
    try:
        name = unquote(urlsplit(url).path.rpartition("/")[2], errors="replace")
    except ValueError:
        return ""
    return "".join(letter for letter in name if letter.isprintable())[:200]
