"""Keep renderings as takes: named by content, so that the same request is never rendered twice."""

from __future__ import annotations

import math
import uuid

import numpy as np
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from synth.contract import SegmentAudio
from synth.models import Take
from voices.objects import delete_objects
from workers.clip_measures import dbfs
from workers.codes_object import pack_codes
from workers.flac_object import store_flac


def find_take(content_key: str) -> Take | None:
    """Return the take of a request whose audio is there, or None."""
    take = Take.objects.filter(content_key=content_key).first()
    if take is None or not default_storage.exists(take.audio_key):
        return None
    return take


def save_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store a rendering's codes and audio; return its take, or the one another worker made first.

    Raises:
        OSError: the storage cannot be written; nothing is left behind.
    """
    columns = _store(content_key, rendered)
    try:
        with transaction.atomic():
            return Take.objects.create(content_key=content_key, **columns)
    except IntegrityError:
        return _replace_or_reuse(content_key, columns)
    except BaseException:
        delete_objects([str(columns["codes_key"]), str(columns["audio_key"])])
        raise


def drop_unused_take(take: Take) -> None:
    """Delete a take that no segment has, and its objects; one that is in use stays."""
    try:
        deleted, _ = Take.objects.filter(pk=take.pk, segments__isnull=True).delete()
    except IntegrityError:  # a segment took it in this moment
        return
    if deleted:
        delete_objects([take.codes_key, take.audio_key])


def _replace_or_reuse(content_key: str, columns: dict[str, object]) -> Take:
    """Return the take with this key, made meanwhile; give it our objects where its own are gone."""
    keys = [str(columns["codes_key"]), str(columns["audio_key"])]
    take = Take.objects.get(content_key=content_key)
    if not default_storage.exists(take.audio_key):
        rows = Take.objects.filter(pk=take.pk, audio_key=take.audio_key)
        if rows.update(**columns):
            return Take.objects.get(pk=take.pk)
    delete_objects(keys)
    return take


def _store(content_key: str, rendered: SegmentAudio) -> dict[str, object]:
    """Write both objects; return the take's columns."""
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
    return {
        "codes_key": codes_key,
        "audio_key": audio_key,
        "frames": rendered.codes.shape[1],
        "sample_rate": rendered.sample_rate,
        "audio_seconds": len(rendered.audio) / rendered.sample_rate,
        "finish_reason": str(rendered.finish_reason),
        "measures": _measures(rendered),
    }


def _measures(rendered: SegmentAudio) -> dict[str, float]:
    """Return peak and rms level in dBFS and where the time went, in seconds."""
    audio, timings = rendered.audio, rendered.timings
    power = float(np.mean(np.square(audio, dtype=np.float64))) if len(audio) else 0.0
    peak = float(np.max(np.abs(audio))) if len(audio) else 0.0
    return {
        "peak_dbfs": round(dbfs(peak), 2),
        "rms_dbfs": round(dbfs(math.sqrt(power)), 2),
        "queue_seconds": round(timings.queue_seconds, 4),
        "prefill_seconds": round(timings.prefill_seconds, 4),
        "decode_seconds": round(timings.decode_seconds, 4),
        "codec_seconds": round(timings.codec_seconds, 4),
    }
