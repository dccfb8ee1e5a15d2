"""Look whether every object that rows name is stored and is what it was when it was stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import soundfile
from django.core.files.storage import default_storage

from synth.models import Take
from ttsweb.commands.base import BaseCommand, StepError, reporting_errors, signals_interrupt
from ttsweb.counted import counted
from ttsweb.storage import fetch_object
from workers.audio.flac import BYTES_PER_SAMPLE
from workers.backups.named import NamedObject, count_named, digest_of, named_objects
from workers.backups.progress import Progress

_BLOCK_SAMPLES = 1 << 16
_STREAMINFO_MD5 = slice(26, 42)  # of a FLAC file: "fLaC", a block's header, then STREAMINFO


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Tell each object that is missing or damaged, and what to do; exit code 1 if there is any."""
    found: list[dict[str, str]] = []
    checked = 0
    progress = Progress(command.stderr, is_shown=not options["json"])
    with reporting_errors(command.stdout, as_json=options["json"]), signals_interrupt():
        progress.total = count_named()
        try:
            for one in named_objects():
                checked += 1
                progress.step()
                state = state_of(one)
                if state == "whole" or not one.is_named_still():  # deleted in this moment
                    continue
                about = {"state": state, "kind": one.kind, "id": str(one.pk), "key": one.key}
                found.append(about | {"remedy": one.remedy()})
                if not options["json"]:
                    progress.end()
                    command.stdout.write(f"{state}  {one.kind} {one.pk}: {one.key}")
                    command.stdout.write(f"         {found[-1]['remedy']}")
        except OSError as error:
            raise StepError(
                "storage_unavailable",
                f"{error.strerror or error}. {counted(checked, 'object')} looked at; run it again "
                "once the storage answers.",
            ) from error
        progress.end()
    if options["json"]:
        command.stdout.write(json.dumps({"checked": checked, "unfit": found}))
    else:
        states = [one["state"] for one in found]
        command.stdout.write(
            f"{counted(checked, 'object')} checked: {states.count('missing')} missing, "
            f"{states.count('damaged')} damaged"
        )
    if found:
        raise SystemExit(1)


def state_of(one: NamedObject) -> str:
    """Return whether an object is `whole`, `missing` or `damaged`.

    Raises:
        OSError: the storage does not work, which says nothing of the object.
    """
    try:
        if one.sha256:
            is_whole = digest_of(one.key)[0] == one.sha256
        elif one.model is Take:
            is_whole = _is_whole_take(one)
        else:  # that it can be read to its end is all that can be known
            digest_of(one.key)
            is_whole = True
    except FileNotFoundError:
        return "missing"
    return "whole" if is_whole else "damaged"


def _is_whole_take(one: NamedObject) -> bool:
    """Compare a take's audio with the digest that is in it, and the size of both objects."""
    take = Take.objects.filter(pk=one.pk).first()
    if take is None:
        return True
    if one.column == "codes_key":
        rest = _size_of(take.audio_key)
        size = default_storage.size(one.key)
        return rest is None or not take.size_bytes or size + rest == take.size_bytes
    return is_whole_flac(one.key, num_samples=round(take.audio_seconds * take.sample_rate))


def _size_of(key: str) -> int | None:
    try:
        return default_storage.size(key)
    except FileNotFoundError:
        return None


def is_whole_flac(key: str, *, num_samples: int) -> bool:
    """Say whether the samples of a FLAC are those whose MD5 its encoder has written into it.

    Raises:
        FileNotFoundError: it is not stored.
    """
    file = fetch_object(key)
    wanted = file.getvalue()[_STREAMINFO_MD5]
    digest, count = hashlib.md5(usedforsecurity=False), 0
    try:
        with soundfile.SoundFile(file) as audio:
            for block in _blocks(audio):
                count += len(block)
                digest.update(_as_encoded(block))
    except soundfile.LibsndfileError:
        return False
    return count == num_samples and (not any(wanted) or digest.digest() == wanted)


def _blocks(audio: soundfile.SoundFile) -> Iterator[np.ndarray[Any, np.dtype[np.int32]]]:
    while len(block := audio.read(_BLOCK_SAMPLES, dtype="int32")):
        yield block


def _as_encoded(block: np.ndarray[Any, np.dtype[np.int32]]) -> bytes:
    """Return samples as FLAC's digest counts them: little-endian, in as many bytes as they need."""
    whole = (block >> 8).astype("<i4").view(np.uint8).reshape(-1, 4)
    return whole[:, :BYTES_PER_SAMPLE].tobytes()
