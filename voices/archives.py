"""Read a voice's archive that somebody sent: nothing that it says of itself is believed.

Names and sizes come from the archive's own tables, which may lie. So the directory is bounded
before it is read, each entry is counted while it is read, and no entry is ever written under its
name. Of codes, a safetensors object, only what a worker would itself have written is taken, so that
a worker can use it as its own; neither the engine nor its library is needed for that.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Annotated, Any, Literal

import numpy as np
from django.conf import settings
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, to_builtins

from ttsweb.http.api import read_json
from ttsweb.refusals import RefusedError
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip
from voices.clip_checks import CONTAINERS
from voices.models import (
    LANGUAGE_TAG,
    MAX_LANGUAGE_CHARS,
)


class ImportRefusedError(RefusedError):
    """An archive or codes from outside are not taken."""


def invalid(message: str) -> ImportRefusedError:
    return ImportRefusedError("archive_invalid", message)


def too_large(message: str) -> ImportRefusedError:
    return ImportRefusedError("archive_too_large", message)


MAX_ENTRIES = 400
MAX_DIRECTORY_BYTES = 128 * 1024
_END_BYTES = 22  # of the end of central directory record, without a comment
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError,
           struct.error, KeyError, UnicodeError)  # fmt: skip


class Archive:
    """The entries of an opened archive; all that is read of it counts against one budget."""

    def __init__(self, opened: zipfile.ZipFile, *, max_bytes: int) -> None:
        self._opened, self._left = opened, max_bytes
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in opened.infolist():
            if not entry.filename:
                raise invalid("The archive has an entry without a name.")
            if entry.is_dir() and not entry.file_size:  # which some programs add
                continue
            if entry.filename in self._entries:
                raise invalid(f"The archive has two entries named {entry.filename!r}.")
            if entry.compress_type not in _METHODS:
                raise invalid(
                    f"The entry {entry.filename!r} uses an unsupported compression; export the "
                    "voice again."
                )
            self._entries[entry.filename] = entry

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._entries)

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Return an entry's bytes.

        Raises:
            ImportRefusedError: archive_invalid for an entry that is missing or damaged;
                archive_too_large for one that has more than `max_bytes`, or more than is left of
                the budget.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise invalid(f"The archive has no entry {name!r}, although its manifest names it.")
        limit = min(max_bytes, self._left)
        try:
            with self._opened.open(entry) as file:  # which gives no more than the stated size
                content = file.read(limit + 1) if entry.file_size <= limit else None
        except _BROKEN as error:
            raise invalid(f"The entry {name!r} is damaged; send the file again.") from error
        if content is None or len(content) > limit:
            raise too_large(f"The entry {name!r} is too large: at most {limit} bytes are allowed.")
        self._left -= len(content)
        return content


@contextmanager
def open_archive(file: IO[bytes], *, max_bytes: int) -> Iterator[Archive]:
    """Give the archive in a seekable file, of which `max_bytes` may be read after unpacking.

    Raises:
        ImportRefusedError: archive_invalid, or archive_too_large for too many entries.
    """
    try:
        # Clips hardly shrink, silence does.
        limits = ZipLimits(MAX_ENTRIES, MAX_DIRECTORY_BYTES, growth_bytes=max_bytes, ratio=1000)
        opened = open_zip(file, limits)
    except ZipRefusedError as error:
        if error.code == "damaged":
            sentence = f"The file is not a zip archive of an exported voice: it {error.why}."
            raise invalid(sentence) from error
        refuse = too_large if error.code == "too_large" else invalid
        raise refuse(f"The archive {error.why}.") from error
    with opened:
        file.seek(-_END_BYTES, 2)
        is_ended = file.read().startswith(b"PK\5\6") and not opened.comment
        if not is_ended or min((one.header_offset for one in opened.infolist()), default=0):
            raise invalid("The file contains other data than the archive; export the voice again.")
        yield Archive(opened, max_bytes=max_bytes)


MAX_CODES_BYTES = 4_000_000
MAX_CODEBOOKS = 64
MAX_FRAMES = 20_000
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 4096
_TEXTS = {"clip", "codec", "frames", "resampler"}


@dataclass(frozen=True)
class CheckedCodes:
    """Codes that are whole: their object's bytes, and what it says of itself."""

    content: bytes
    clip_fingerprint: str
    codec_fingerprint: str
    codebooks: int
    frames: int
    resampler: str


def check_codes(content: bytes) -> CheckedCodes:
    """Return what an object of codes int16 [K, T] holds.

    Raises:
        ImportRefusedError: codes_too_large (413) or codes_invalid.
    """
    if len(content) > MAX_CODES_BYTES:
        message = f"A file of codes may have at most {MAX_CODES_BYTES} bytes."
        raise ImportRefusedError("codes_too_large", message)
    header, data = _split(content)
    texts = header.pop("__metadata__", None)
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _invalid("the metadata do not name the clip and the codec")
    if set(texts) != _TEXTS or len(texts["resampler"]) > 20:
        raise _invalid(f"the metadata must be {', '.join(sorted(_TEXTS))}, and nothing else")
    codebooks, frames = _shape(header, data)
    if (said := texts["frames"]) != str(frames):
        raise _invalid(f"the codes have {frames} frames, but the metadata say {said!r:.20}")
    if np.frombuffer(data, dtype="<i2").min() < 0:
        raise _invalid("the codes contain negative numbers")
    return CheckedCodes(
        content, texts["clip"], texts["codec"], codebooks, frames, texts["resampler"]
    )


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header's members and the bytes behind it."""
    if len(content) < _LENGTH.size:
        raise _invalid("the file is not a safetensors file")
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    if length > _MAX_HEADER_BYTES or end > len(content):
        raise _invalid("the safetensors file is cut short")
    try:
        header = json.loads(content[_LENGTH.size : end].decode())
    except (ValueError, RecursionError) as error:
        raise _invalid("the header is not JSON") from error
    if not isinstance(header, dict):
        raise _invalid("the header is not an object")
    return header, content[end:]


def _shape(header: dict[str, Any], data: bytes) -> tuple[int, int]:
    """Return K and T of the one tensor, which fills the bytes exactly."""
    tensor = header.get("codes")
    if set(header) != {"codes"} or not isinstance(tensor, dict):
        raise _invalid("the file must hold one tensor, `codes`")
    shape = tensor.get("shape")
    if tensor.get("dtype") != "I16" or not isinstance(shape, list) or len(shape) != 2:
        raise _invalid("the tensor `codes` is not int16 [K, T]")
    if not all(type(size) is int for size in shape):
        raise _invalid("the shape of `codes` is not made of whole numbers")
    codebooks, frames = shape
    if not (1 <= codebooks <= MAX_CODEBOOKS and 1 <= frames <= MAX_FRAMES):
        raise _invalid(
            f"there are {codebooks} codebooks of {frames} frames; at most {MAX_CODEBOOKS} "
            f"codebooks of {MAX_FRAMES} frames are allowed"
        )
    if tensor.get("data_offsets") != [0, len(data)] or len(data) != 2 * codebooks * frames:
        raise _invalid("the header does not fit the file's length")
    return codebooks, frames


def _invalid(why: str) -> ImportRefusedError:
    return ImportRefusedError("codes_invalid", f"The codes cannot be used: {why}.")


MANIFEST = "manifest.json"
FORMAT = "ttsweb-voice"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1_000_000
MAX_CODES_PER_CLIP = 8
_STORABLE = r"\A[^\0\ud800-\udfff]*\Z"  # no database takes the others

_Label = Annotated[str, Meta(min_length=1, max_length=40, pattern=_STORABLE)]
_Code = Annotated[str, Meta(min_length=1, max_length=60, pattern=_STORABLE)]
_Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=_STORABLE)]
_Person = Annotated[str, Meta(min_length=1, max_length=200, pattern=_STORABLE)]
_Filename = Annotated[str, Meta(max_length=200, pattern=_STORABLE)]
_Message = Annotated[str, Meta(min_length=1, max_length=500, pattern=_STORABLE)]
_Description = Annotated[str, Meta(max_length=2000, pattern=_STORABLE)]
_Statement = Annotated[str, Meta(min_length=1, max_length=2000, pattern=_STORABLE)]
_Transcript = Annotated[str, Meta(min_length=1, max_length=20_000, pattern=_STORABLE)]
_Tag = Annotated[
    str, Meta(max_length=MAX_LANGUAGE_CHARS, pattern=rf"\A({LANGUAGE_TAG.pattern})?\Z")
]
_Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Path = Annotated[str, Meta(pattern=r"\A(clips|codes)/[a-z0-9][a-z0-9.-]{0,99}\Z")]
_Container = Annotated[str, Meta(pattern=rf"\A({'|'.join(CONTAINERS)})\Z")]
_Count = Annotated[int, Meta(ge=0, le=10**9)]
_Level = Annotated[float, Meta(ge=-1e9, le=1e9)]
_Peak = Annotated[int, Meta(ge=0, le=255)]


class _Part(Struct, forbid_unknown_fields=True):
    """The base of what a manifest is made of."""


class ClipWarning(_Part):
    code: _Code
    message: _Message


class Measures(_Part):
    """What was measured while a clip was decoded; empty for one that never was."""

    duration_seconds: _Level | UnsetType = UNSET
    peak_dbfs: _Level | UnsetType = UNSET
    rms_dbfs: _Level | UnsetType = UNSET
    silence_share: _Level | UnsetType = UNSET
    noise_floor_dbfs: _Level | UnsetType = UNSET
    clipped_share: _Level | UnsetType = UNSET
    sample_rate: _Count | UnsetType = UNSET
    channels: _Count | UnsetType = UNSET
    damaged_packets: _Count | UnsetType = UNSET
    codec: _Label | UnsetType = UNSET
    container: _Label | UnsetType = UNSET
    peaks: Annotated[list[_Peak], Meta(max_length=400)] | UnsetType = UNSET
    warnings: Annotated[list[ClipWarning], Meta(max_length=20)] | UnsetType = UNSET

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = to_builtins(self)
        return found


class CodesFile(_Part):
    file: _Path
    sha256: _Digest
    codec_fingerprint: _Digest


class ClipFile(_Part):
    file: _Path
    sha256: _Digest
    container: _Container
    filename: _Filename
    transcript: _Transcript
    measures: Measures
    codes: Annotated[list[CodesFile], Meta(max_length=MAX_CODES_PER_CLIP)]


class Consent(_Part):
    statement: _Statement
    by: _Person
    at: dt.datetime

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            self.at = self.at.replace(tzinfo=dt.UTC)


class Manifest(_Part):
    """What an archive says of its voice."""

    format: Literal["ttsweb-voice"]
    format_version: Literal[1]
    name: _Name
    description: _Description
    language: _Tag
    cache_codes: bool
    version: Annotated[int, Meta(ge=1, le=10**9)]
    consent: Consent
    clips: Annotated[list[ClipFile], Meta(min_length=1, max_length=10_000)]

    def __post_init__(self) -> None:
        self.name = self.name.strip()
        if not self.name:
            raise ValueError("Expected a name that is not blank - at `$.name`")


def read_manifest(archive: Archive) -> Manifest:
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
        manifest = convert(members, Manifest)
    except ValidationError as error:
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


def _check_files(manifest: Manifest, archive: Archive) -> None:
    clips = manifest.clips
    if len(clips) > settings.MAX_CLIPS_PER_VOICE:
        limit = settings.MAX_CLIPS_PER_VOICE
        raise too_large(f"The archive has {len(clips)} clips; at most {limit} are allowed.")
    named = [MANIFEST]
    for clip in clips:
        named += [clip.file, *(codes.file for codes in clip.codes)]
    if len(set(named)) != len(named):
        raise invalid("The manifest names a file twice.")
    for name in sorted(archive.names.symmetric_difference(named))[:1]:
        where = "listed in the manifest" if name in archive.names else "in the archive"
        raise invalid(f"The file {name!r} is not {where}.")
