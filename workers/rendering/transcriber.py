"""Have renderings and clips heard by a transcriber: one of an extra, or one that is plugged in.

`TTS_TRANSCRIBER` names a factory, `package.module:factory`, which each worker that renders calls
once, at its start. What it returns has one method, that of `Transcriber`. Calls come one after the
other, beside the engine's thread. Whatever goes wrong in it stands in the worker's status; a take
is never lost for it, it is only not heard.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol

from django.conf import settings

from synth.contract import AudioArray, SegmentAudio
from synth.models import Take
from synth.text.languages import base_of
from synth.text.speller import speller
from ttsweb.install.extras import EXTRAS
from workers.process.status import StatusReport
from workers.rendering.quality import Check

# Errors per word of a text (per letter if words have no blanks between them) above which a take is
# suspicious: a good transcriber makes up to a fifth by itself.
ASR_MAX_ERROR = 0.35
ASR_SECONDS = 30.0  # for one take; after that the take is not checked
CLIP_SECONDS = 180.0  # for one clip, which has up to a minute

# Case, marks, apostrophes and the ways to write a number do not count. Texts of scripts that put no
# blanks between words are compared letter by letter, all others word by word.

_TAG = re.compile(r"<\|[^|>]*\|>|\[[^\[\]]*\]")
_APOSTROPHES = re.compile("['\u2019\u02bc\uff07]")
_BLANKLESS = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
_MOST_TIMES = 3  # as long as the text: what is heard beyond it makes nothing more certain
_SPARE_TOKENS = 20


def error_rate(expected: str, heard: str, *, language: str = "") -> float | None:
    """Return errors per word, or per letter, of the expected text: 0 where all of it was heard.

    More may be heard than there is, so that it may be above 1. None where nothing is to be said,
    such as for a text of cues alone.

    Args:
        language: a tag such as `en`; numbers of languages with rules are spelled out on both sides.
    """
    wanted = _words(_TAG.sub(" ", expected), language)
    found = _words(heard, language)
    if not wanted:
        return None
    if _is_blankless("".join(wanted)):
        wanted, found = list("".join(wanted)), list("".join(found))
    found = found[: _MOST_TIMES * len(wanted) + _SPARE_TOKENS]
    return count_errors(wanted, found) / len(wanted)


def _words(text: str, language: str) -> list[str]:
    spelled = _spell_out(unicodedata.normalize("NFKC", text), language)
    plain = _APOSTROPHES.sub("", spelled.casefold())
    kept = (letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in plain)
    return "".join(kept).split()


def _spell_out(text: str, language: str) -> str:
    spell = speller(language) if language else None
    if spell is None:
        return text
    for start, end, words in sorted(spell(text), reverse=True):
        text = f"{text[:start]}{words}{text[end:]}"
    return text


def _is_blankless(text: str) -> bool:
    letters = [letter for letter in text if unicodedata.category(letter)[0] == "L"]
    blankless = [one for one in letters if unicodedata.name(one, "").startswith(_BLANKLESS)]
    return 2 * len(blankless) > len(letters)


def count_errors(wanted: Sequence[str], found: Sequence[str]) -> int:
    """Return how many insertions, deletions and replacements lead from one to the other."""
    row = list(range(len(found) + 1))
    for number, one in enumerate(wanted, 1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(found, 1):
            best = min(row[place] + 1, row[place - 1] + 1, diagonal + (one != other))
            diagonal, row[place] = row[place], best
    return row[-1]


logger = logging.getLogger(__name__)

FLAG = "asr_mismatch"
MOST_HEARD_CHARS = 2000  # that are kept of a transcript
_TOPIC = "transcriber"


class Transcriber(Protocol):
    """What a factory returns.

    It may also have `languages`, the only ones that it hears, as tags without a region, and
    `max_error`, above which a take is suspicious, in place of ASR_MAX_ERROR.
    """

    def transcribe(self, audio: AudioArray, sample_rate: int, *, language: str) -> str:
        """Return what is said in mono audio, float32 [N] of -1 to 1.

        Args:
            language: a tag such as `en`, or empty where the job names none.
        """
        ...


class TranscriberError(Exception):
    """TTS_TRANSCRIBER names nothing that can be used; the sentence says why."""


class NotHeardError(Exception):
    """A transcriber failed at some audio; the text says why."""


def find_factory(name: str) -> Callable[[], Transcriber]:
    """Return the factory that `package.module:factory` names; its module is imported.

    Raises:
        TranscriberError: there is no such module or name, or it cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        factory: Any = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # a module of somebody else may raise anything
        reason = f"{type(error).__name__}: {error}"
        for extra, module in EXTRAS.items():
            if getattr(error, "name", None) == module:
                reason = f"its package is missing: ./tts install {extra}"
        raise TranscriberError(f"TTS_TRANSCRIBER={name!r} cannot be imported: {reason}") from error
    if not callable(factory):
        raise TranscriberError(f"TTS_TRANSCRIBER={name!r} is not a factory: it cannot be called")
    made: Callable[[], Transcriber] = factory
    return made


def make_transcriber(name: str) -> Transcriber:
    """Return a transcriber of a factory.

    Raises:
        TranscriberError: there is no such factory, it raises, or what it returns has no
            `transcribe`.
    """
    factory = find_factory(name)
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TranscriberError(f"TTS_TRANSCRIBER={name!r} cannot start: {reason}") from error
    if not callable(getattr(made, "transcribe", None)):
        raise TranscriberError(
            f"TTS_TRANSCRIBER={name!r} returned a {type(made).__name__}, which has no method "
            "`transcribe(audio, sample_rate, *, language)`"
        )
    return made


class SpeechCheck:
    """Hold this process's transcriber, if any, and judge takes by it; safe from every thread."""

    def __init__(self, status: StatusReport) -> None:
        self._status = status
        self._transcriber: Transcriber | None = None
        self._turn = threading.Lock()
        self._last: Future[Any] | None = None  # a call that was given up may still go on

    @property
    def is_on(self) -> bool:
        return self._transcriber is not None

    def start(self) -> None:
        """Make the transcriber that the settings name.

        Raises:
            TranscriberError: it cannot be made; the sentence says why.
        """
        if settings.TRANSCRIBER and self._transcriber is None:
            self._transcriber = make_transcriber(settings.TRANSCRIBER)
            logger.info("transcriber ready: %s", settings.TRANSCRIBER)

    def hear_clip(self, audio: AudioArray, sample_rate: int, *, language: str) -> str:
        """Return what is said in mono audio, float32 [N].

        Raises:
            NotHeardError: there is no transcriber here, or it does not hear this.
        """
        transcriber = self._transcriber
        if transcriber is None:
            raise NotHeardError("This worker has no transcriber; set TTS_TRANSCRIBER for it too.")
        if language and not hears(transcriber, language):
            known = ", ".join(sorted(transcriber.languages))  # type: ignore[attr-defined]  # optional
            raise NotHeardError(f"The transcriber hears {known}, not {language}.")
        with self._turn:
            call = _call(transcriber, audio, sample_rate, language)
            return _storable(_heard_by(call, CLIP_SECONDS))

    def judge(self, take: Take, text: str, rendered: SegmentAudio, *, language: str) -> None:
        """Write what is heard in a take whose row is still to be written, and a flag if it is bad.

        Where the transcriber fails, or does not know the language, the take is left as it is.
        """
        transcriber = self._transcriber
        if transcriber is None or not hears(transcriber, language):
            return
        with self._turn:
            heard = self._hear(transcriber, rendered, language)
        error = None if heard is None else error_rate(text, heard, language=language)
        if heard is None or error is None:
            return
        check = Check(FLAG, error, getattr(transcriber, "max_error", ASR_MAX_ERROR))
        screened = list(take.measures.get("screen", ()))
        measured = {"name": FLAG, "value": round(error, 4), "limit": round(check.limit, 4)}
        take.measures = take.measures | {
            "screen": [*screened, measured],
            "asr_error": round(error, 4),
            "asr_text": heard[:MOST_HEARD_CHARS],
        }
        score = 1.0 if take.quality_score is None else take.quality_score
        take.quality_score = round(score * check.factor, 4)
        if check.is_flagged:
            take.quality_flags = [*take.quality_flags, FLAG]

    def _hear(self, transcriber: Transcriber, rendered: SegmentAudio, language: str) -> str | None:
        """Return what is heard, within the time that is allowed; None where that failed."""
        if self._last is not None and not self._last.done():
            return None  # the trouble stands in the status already
        call = self._last = _call(transcriber, rendered.audio, rendered.sample_rate, language)
        try:
            heard = _heard_by(call, ASR_SECONDS)
        except NotHeardError as error:
            self._report_trouble(str(error), error.__cause__)
            return None
        if self._status.trouble(_TOPIC):
            logger.info("the transcriber works again")
        return _storable(heard)

    def _report_trouble(self, reason: str, error: BaseException | None) -> None:
        """Say in log and status what went wrong; the same thing again is not logged again."""
        sentence = f"The transcriber failed, so takes are not checked for wrong words: {reason}."
        if self._status.trouble(_TOPIC, sentence[:500]):
            logger.error("the transcriber failed: %s", reason[:500], exc_info=error)


def hears(transcriber: Transcriber, language: str) -> bool:
    """Say whether a transcriber knows the language of a tag."""
    languages = getattr(transcriber, "languages", ())
    return not languages or base_of(language) in languages


def _call(
    transcriber: Transcriber, audio: AudioArray, sample_rate: int, language: str
) -> Future[Any]:
    """Begin a call in a thread of its own, which can be left behind: nothing can stop it."""
    future: Future[Any] = Future()
    own = audio.copy()  # what it does to it is its own affair

    def run() -> None:
        try:
            heard = transcriber.transcribe(own, sample_rate, language=language)
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)
        else:
            future.set_result(heard)

    threading.Thread(target=run, name="transcribe", daemon=True).start()
    return future


def _heard_by(call: Future[Any], seconds: float) -> str:
    """Return what a call heard within the time.

    Raises:
        NotHeardError: nothing; its cause is what the transcriber raised.
    """
    try:
        error = call.exception(seconds)
    except FutureTimeoutError:
        raise NotHeardError(f"it took more than {seconds:g} s") from None
    if error is not None:
        raise NotHeardError(f"{type(error).__name__}: {error}") from error
    heard = call.result()
    if not isinstance(heard, str):
        raise NotHeardError(f"it returned a {type(heard).__name__} instead of a text")
    return heard


def _storable(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
