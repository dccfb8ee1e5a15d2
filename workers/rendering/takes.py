"""Keep takes: their codes and audio as objects, what was measured of them, and their rows."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence

import numpy as np
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from synth.card import CardError, read_card
from synth.contract import CodedError, RenderSpec, SegmentAudio
from synth.models import Take
from voices.objects import delete_objects
from workers.audio.clips import dbfs
from workers.audio.flac import store_flac
from workers.rendering.codes import pack_codes
from workers.rendering.quality import screen


class CardInvalidError(CodedError):
    """The checkpoint's card became unreadable, so nobody knows whether to screen."""

    code = "checkpoint_card_invalid"


def screen_take(
    take: Take, spec: RenderSpec, rendered: SegmentAudio, *, is_on: bool | None = None
) -> None:
    """Write what the screen finds into a take whose row is still to be written.

    Where the screen is off, the take's score stays None.

    Args:
        is_on: whether the screen is on; None is what the card of this host's checkpoint says.

    Raises:
        CardInvalidError: the card cannot be read.
    """
    try:
        is_wanted = read_card(settings.CHECKPOINT).quality_screen if is_on is None else is_on
    except CardError as error:
        raise CardInvalidError(str(error)) from error
    if not is_wanted:
        return
    quality = screen(spec, rendered)
    take.quality_score, take.quality_flags = quality.score, quality.flags
    take.measures = take.measures | quality.measures


class NotFiniteAudioError(CodedError):
    """The codec gave samples that are not numbers."""

    code = "audio_not_finite"


def find_takes(content_keys: Iterable[str]) -> dict[str, Take]:
    """Return the takes of requests whose audio is there, by content key."""
    found = Take.objects.filter(content_key__in=set(content_keys))
    return {take.content_key: take for take in found if default_storage.exists(take.audio_key)}


def store_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store a rendering's codes and audio; return its take, which has no row yet: see `add_takes`.

    Raises:
        NotFiniteAudioError: the audio holds samples that are not numbers.
        OSError: the storage cannot be written; nothing is left behind.
    """
    measures = _measures(rendered)
    folder = f"takes/{content_key[:2]}/{content_key}"
    packed = pack_codes(rendered.codes, content_key=content_key)
    codes_key = default_storage.save(
        f"{folder}/{uuid.uuid4().hex}.safetensors", ContentFile(packed)
    )
    try:
        audio_key = store_flac(folder, rendered.audio, rendered.sample_rate)
    except BaseException:
        delete_objects([codes_key])
        raise
    return Take(
        content_key=content_key,
        codes_key=codes_key,
        audio_key=audio_key,
        frames=rendered.codes.shape[1],
        sample_rate=rendered.sample_rate,
        audio_seconds=len(rendered.audio) / rendered.sample_rate,
        finish_reason=str(rendered.finish_reason),
        size_bytes=len(packed) + default_storage.size(audio_key),
        measures=measures,
    )


def add_takes(stored: Sequence[Take]) -> dict[str, Take]:
    """Write the rows of stored takes; return all of them by content key.

    Of several with one key, here or in another worker, the first one stays and the objects of the
    others go. Calling it again with the same takes is harmless.

    Raises:
        IntegrityError: a take of another worker stood in the way and was deleted in this moment.
    """
    with transaction.atomic():
        # In one order: two workers that add the same takes must not wait for each other.
        ordered = sorted(stored, key=lambda take: take.content_key)
        Take.objects.bulk_create(ordered, ignore_conflicts=True)
        found = Take.objects.in_bulk(
            {take.content_key for take in stored}, field_name="content_key"
        )
    if any(take.content_key not in found for take in stored):
        raise IntegrityError("a take of another worker was deleted at the same time")
    kept = {take.pk for take in found.values()}
    others = {take.content_key: _replace_or_reuse(take) for take in stored if take.pk not in kept}
    return found | others


def drop_stored(stored: Iterable[Take]) -> None:
    delete_objects([key for take in stored for key in (take.codes_key, take.audio_key)])


def drop_unused_take(take: Take) -> None:
    """Delete a take that no segment has, and its objects; one that is in use stays."""
    try:
        unused = Take.objects.filter(segments__isnull=True, candidate_of__isnull=True)
        deleted, _ = unused.filter(pk=take.pk).delete()
    except IntegrityError:  # a segment took it in this moment
        return
    if deleted:
        delete_objects([take.codes_key, take.audio_key])


def _replace_or_reuse(stored: Take) -> Take:
    """Return the take with this key, made meanwhile; give it our objects where its own are gone."""
    take = Take.objects.get(content_key=stored.content_key)
    if take.audio_key == stored.audio_key:  # an earlier call has done so
        return take
    if not default_storage.exists(take.audio_key):
        columns = {
            field.attname: getattr(stored, field.attname)
            for field in Take._meta.concrete_fields
            if field.attname not in ("id", "content_key", "created_at")
        }
        rows = Take.objects.filter(pk=take.pk, audio_key=take.audio_key)
        if rows.update(**columns):
            return Take.objects.get(pk=take.pk)
    drop_stored([stored])
    return take


def _measures(rendered: SegmentAudio) -> dict[str, float]:
    """Return peak and rms level in dBFS and where the time went, in seconds.

    Raises:
        NotFiniteAudioError: a sample is not a number, which shows in the sum of squares.
    """
    audio, timings = rendered.audio, rendered.timings
    total = float(np.einsum("i,i->", audio, audio, dtype=np.float64))
    if not math.isfinite(total):
        raise NotFiniteAudioError("The model's audio contains samples that are not numbers.")
    peak = max(float(audio.max()), -float(audio.min())) if len(audio) else 0.0
    return {
        "peak_dbfs": round(dbfs(peak), 2),
        "rms_dbfs": round(dbfs(math.sqrt(total / max(len(audio), 1))), 2),
        "queue_seconds": round(timings.queue_seconds, 4),
        "prefill_seconds": round(timings.prefill_seconds, 4),
        "decode_seconds": round(timings.decode_seconds, 4),
        "codec_seconds": round(timings.codec_seconds, 4),
    }
