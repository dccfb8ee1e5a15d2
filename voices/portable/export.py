"""Write a voice as an archive whose bytes are the same for the same voice; read its manifest."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.utils.dateparse import parse_datetime

from ttsweb.http.parsers import read_json
from ttsweb.refusals import RefusedError
from ttsweb.zips import fixed_entry
from voices.clip_checks import CONTAINERS
from voices.models import (
    LANGUAGE_TAG,
    MAX_LANGUAGE_CHARS,
    ClipCodes,
    ReferenceClip,
    Voice,
    VoiceVersion,
)
from voices.portable.archive import MAX_CODES_BYTES, Archive, ImportRefusedError, invalid, too_large

MANIFEST = "manifest.json"
FORMAT = "ttsweb-voice"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1_000_000
MAX_CODES_PER_CLIP = 8
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # what no database takes

Reader = Callable[[Any], Any]


class _WrongError(ValueError):
    """A member is wrong: where it is, and what was expected."""

    def __init__(self, expected: str, *path: str) -> None:
        super().__init__(f"{'.'.join(path)}: expected {expected}")
        self.expected, self.path = expected, path


def _member(
    kinds: type | tuple[type, ...], expected: str, is_right: Callable[[Any], Any]
) -> Reader:
    """Return what reads a value of these types for which `is_right` is not false."""

    def read(value: Any) -> Any:
        is_bool = isinstance(value, bool) and kinds is not bool  # a number to Python
        if is_bool or not isinstance(value, kinds) or not is_right(value):
            raise _WrongError(expected)
        return value

    return read


def _text(most: int, *, least: int = 1, is_trimmed: bool = True) -> Reader:
    def is_right(text: str) -> bool:
        return least <= len(text) <= most and not _UNSTORABLE.search(text)

    read = _member(str, f"a text of {least} to {most} characters", is_right)
    return lambda value: read(value.strip() if is_trimmed and isinstance(value, str) else value)


def _matching(pattern: str, expected: str) -> Reader:
    return _member(str, expected, re.compile(pattern).fullmatch)


def _number(low: float, high: float, *, is_whole: bool = False) -> Reader:
    expected = f"a {'whole ' * is_whole}number from {low:g} to {high:g}"
    return _member(int if is_whole else (int, float), expected, lambda one: low <= one <= high)


def _list_of(reader: Reader, *, most: int, least: int = 0) -> Reader:
    is_right = _member(
        list, f"a list of {least} to {most} entries", lambda many: least <= len(many) <= most
    )
    return lambda value: [
        _read_at(str(place), reader, one) for place, one in enumerate(is_right(value))
    ]


def _object(members: Mapping[str, Reader], *, is_whole: bool = True) -> Reader:
    """Return what reads an object of these members and no others; all are needed if `is_whole`."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _WrongError("an object")
        for name in sorted(value.keys() - members.keys()):
            raise _WrongError(f"one of {', '.join(members)}", name[:50])
        for name in sorted(members.keys() - value.keys()) if is_whole else ():
            raise _WrongError("this member", name)
        return {name: _read_at(name, members[name], one) for name, one in value.items()}

    return read


def _read_at(place: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except _WrongError as error:
        raise _WrongError(error.expected, place, *error.path) from error


def _language(value: Any) -> Any:
    is_right = re.compile(f"({LANGUAGE_TAG.pattern})?").fullmatch
    tag = _text(MAX_LANGUAGE_CHARS, least=0)(value)
    return _member(str, "a language tag such as en or pt-BR", is_right)(tag)


def _moment(value: Any) -> dt.datetime:
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        raise _WrongError("a time such as 2026-01-31T12:00:00Z")
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


_COUNT = _number(0, 10**9, is_whole=True)
_DIGEST = _matching("[0-9a-f]{64}", "a SHA-256 in hexadecimal")
_PATH = _matching(r"(clips|codes)/[a-z0-9][a-z0-9.-]{0,99}", "a path such as clips/0.wav")
_LEVELS = ("duration_seconds", "peak_dbfs", "rms_dbfs", "silence_share", "noise_floor_dbfs",
           "clipped_share")  # fmt: skip
# What was measured while a clip was decoded; empty for one that never was.
_MEASURES = _object(
    {
        **dict.fromkeys(_LEVELS, _number(-1e9, 1e9)),
        **dict.fromkeys(("sample_rate", "channels", "damaged_packets"), _COUNT),
        **dict.fromkeys(("codec", "container"), _text(40)),
        "peaks": _list_of(_number(0, 255, is_whole=True), most=400),
        "warnings": _list_of(_object({"code": _text(60), "message": _text(500)}), most=20),
    },
    is_whole=False,
)
_CODES = _object({"file": _PATH, "sha256": _DIGEST, "codec_fingerprint": _DIGEST})
_CLIP = _object(
    {
        "file": _PATH,
        "sha256": _DIGEST,
        "container": _matching("|".join(CONTAINERS), f"one of {', '.join(CONTAINERS)}"),
        "filename": _text(200, least=0),
        "transcript": _text(20_000, is_trimmed=False),
        "measures": _MEASURES,
        "codes": _list_of(_CODES, most=MAX_CODES_PER_CLIP),
    }
)
_MANIFEST = _object(
    {
        "format": _matching(FORMAT, FORMAT),
        "format_version": _COUNT,
        "name": _text(100),
        "description": _text(2000, least=0, is_trimmed=False),
        "language": _language,
        "cache_codes": _member(bool, "true or false", lambda _: True),
        "version": _number(1, 10**9, is_whole=True),
        "consent": _object(
            {
                "statement": _text(2000, is_trimmed=False),
                "by": _text(200, is_trimmed=False),
                "at": _moment,
            }
        ),
        "clips": _list_of(_CLIP, least=1, most=10_000),
    }
)


def read_manifest(archive: Archive) -> dict[str, Any]:
    """Return the checked manifest; each file that it names is in the archive, and no other is.

    Raises:
        ImportRefusedError: archive_invalid, archive_version_unknown, archive_too_large.
    """
    if MANIFEST not in archive.names:
        raise invalid(f"The archive is not an exported voice: it has no {MANIFEST}.")
    members = _parse(archive.read(MANIFEST, max_bytes=MAX_MANIFEST_BYTES))
    if members.get("format") == FORMAT and members.get("format_version") != FORMAT_VERSION:
        raise ImportRefusedError(
            "archive_version_unknown",
            f"The archive has the format version {str(members.get('format_version'))[:20]}, "
            f"but this server reads version {FORMAT_VERSION}. Export the voice again, or "
            "upgrade the older server.",
        )
    try:
        manifest: dict[str, Any] = _MANIFEST(members)
    except _WrongError as error:
        raise invalid(f"The manifest cannot be used: {error}.") from error
    _check_files(manifest, archive)
    return manifest


def _parse(content: bytes) -> dict[str, Any]:
    try:
        members = read_json(content)
    except ValueError as error:
        raise invalid(f"{MANIFEST} cannot be read as JSON in UTF-8.") from error
    if not isinstance(members, dict):
        raise invalid(f"{MANIFEST} is not a JSON object.")
    return members


def _check_files(manifest: dict[str, Any], archive: Archive) -> None:
    clips = manifest["clips"]
    if len(clips) > settings.MAX_CLIPS_PER_VOICE:
        limit = settings.MAX_CLIPS_PER_VOICE
        raise too_large(f"The archive has {len(clips)} clips; at most {limit} are allowed.")
    named = [MANIFEST]
    for clip in clips:
        named += [clip["file"], *(codes["file"] for codes in clip["codes"])]
    if len(set(named)) != len(named):
        raise invalid("The manifest names a file twice.")
    for name in sorted(archive.names.symmetric_difference(named))[:1]:
        where = "listed in the manifest" if name in archive.names else "in the archive"
        raise invalid(f"The file {name!r} is not {where}.")


IN_MEMORY_BYTES = 4_000_000  # a larger archive goes through a temporary file
CHUNK_BYTES = 128 * 1024


class ClipLostError(RefusedError):
    """A clip's bytes are gone from the storage, or are not those that were uploaded."""


class ArchiveFile:
    """A written archive: iterating gives its bytes in chunks, closing it lets them go."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = file.seek(0, 2)
        self.close = file.close
        file.seek(0)

    def __iter__(self) -> Iterator[bytes]:
        while part := self.file.read(CHUNK_BYTES):
            yield part


_Codes = list[tuple[dict[str, str], bytes]]  # what the manifest says of each, and its bytes


def export_voice(voice: Voice, version: VoiceVersion) -> ArchiveFile:
    """Return an archive of a voice as its `version` has it.

    Codes whose object is gone are left out: whoever imports the voice encodes it again.

    Raises:
        ClipLostError: a clip cannot be exported as it was uploaded.
        OSError: the storage cannot be read.
    """
    clips = list(version.clips.select_related("stored").order_by("index"))
    codes = [_codes_of(clip) for clip in clips]
    file: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # returned
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target:
            manifest = _manifest(voice, version, clips, codes)
            text = json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True)
            target.writestr(fixed_entry(MANIFEST), text.encode())
            for clip, entries in zip(clips, codes, strict=True):
                _copy_clip(target, clip)
                for member, content in entries:
                    target.writestr(fixed_entry(member["file"]), content)
        return ArchiveFile(file)
    except BaseException:
        file.close()
        raise


def _codes_of(clip: ReferenceClip) -> _Codes:
    """Return the clip's codes in each codec, newest codecs first where there are too many."""
    rows = ClipCodes.objects.filter(clip=clip.stored, encoded_at__isnull=False)
    newest = rows.order_by("-encoded_at")[:MAX_CODES_PER_CLIP]
    entries: _Codes = []
    for row in sorted(newest, key=lambda row: row.codec_fingerprint):
        try:
            with default_storage.open(row.key) as file:
                content = file.read(MAX_CODES_BYTES + 1)
        except FileNotFoundError:
            continue
        if len(content) <= MAX_CODES_BYTES:
            codec, digest = row.codec_fingerprint, hashlib.sha256(content).hexdigest()
            name = f"codes/{clip.index}-{codec}.safetensors"
            member = {"file": name, "sha256": digest, "codec_fingerprint": codec}
            entries.append((member, content))
    return entries


def _manifest(
    voice: Voice, version: VoiceVersion, clips: list[ReferenceClip], codes: list[_Codes]
) -> dict[str, Any]:
    """Return the manifest; it holds neither ids nor the time of the export."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": voice.name,
        "description": voice.description,
        "language": voice.language,
        "cache_codes": voice.cache_codes,
        "version": version.number,
        "consent": {
            "statement": voice.consent_statement,
            "by": voice.consent_by,
            "at": voice.consent_at.isoformat(),
        },
        "clips": [
            {
                "file": _clip_name(clip),
                "sha256": clip.stored.fingerprint,
                "container": clip.stored.container,
                "filename": clip.filename,
                "transcript": clip.transcript,
                "measures": clip.stored.measures,
                "codes": [member for member, _ in entries],
            }
            for clip, entries in zip(clips, codes, strict=True)
        ],
    }


def _copy_clip(target: zipfile.ZipFile, clip: ReferenceClip) -> None:
    """Copy a clip's bytes in chunks, and look whether they are still those of its digest."""
    entry = fixed_entry(_clip_name(clip))
    entry.file_size = clip.stored.size_bytes
    digest = hashlib.sha256()
    try:
        with (
            default_storage.open(clip.stored.original_key) as source,
            target.open(entry, "w") as copy,
        ):
            while part := source.read(CHUNK_BYTES):
                digest.update(part)
                copy.write(part)
    except FileNotFoundError as error:
        raise ClipLostError(
            "clip_lost",
            f"The file of clip {clip.index} is missing in the storage; upload the clip again.",
        ) from error
    if digest.hexdigest() != clip.stored.fingerprint:
        raise ClipLostError(
            "clip_lost", f"The file of clip {clip.index} is damaged; upload the clip again."
        )


def _clip_name(clip: ReferenceClip) -> str:
    return f"clips/{clip.index}.{clip.stored.container}"
