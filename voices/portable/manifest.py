"""Describe a voice in its archive: what `manifest.json` holds, and the strict reading of it."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from django.conf import settings
from rest_framework import serializers

from ttsweb.http.api import StrictSerializer, error_items
from voices.api.serializers import check_language
from voices.clip_checks import CONTAINERS
from voices.portable.archive import Archive, ImportRefusedError, invalid, too_large

MANIFEST = "manifest.json"
FORMAT = "ttsweb-voice"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1_000_000
MAX_CODES_PER_CLIP = 8
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"(clips|codes)/[a-z0-9][a-z0-9.-]{0,99}")
_NUMBER: dict[str, Any] = {"required": False, "min_value": -1e9, "max_value": 1e9}
_COUNT: dict[str, Any] = {"required": False, "min_value": 0, "max_value": 10**9}


class _WarningManifest(StrictSerializer):
    code = serializers.CharField(max_length=60)
    message = serializers.CharField(max_length=500)


class _MeasuresManifest(StrictSerializer):
    """What was measured while the clip was decoded; empty for one that never was."""

    duration_seconds = serializers.FloatField(**_NUMBER)
    peak_dbfs = serializers.FloatField(**_NUMBER)
    rms_dbfs = serializers.FloatField(**_NUMBER)
    silence_share = serializers.FloatField(**_NUMBER)
    noise_floor_dbfs = serializers.FloatField(**_NUMBER)
    clipped_share = serializers.FloatField(**_NUMBER)
    sample_rate = serializers.IntegerField(**_COUNT)
    channels = serializers.IntegerField(**_COUNT)
    damaged_packets = serializers.IntegerField(**_COUNT)
    codec = serializers.CharField(required=False, max_length=40)
    container = serializers.CharField(required=False, max_length=40)
    peaks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=255), required=False, max_length=400
    )
    peaks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=255), required=False, max_length=400
    )
    warnings = serializers.ListField(child=_WarningManifest(), required=False, max_length=20)


class _CodesManifest(StrictSerializer):
    file = serializers.RegexField(_FILE)
    sha256 = serializers.RegexField(_SHA256)
    codec_fingerprint = serializers.RegexField(_SHA256)


class _ClipManifest(StrictSerializer):
    file = serializers.RegexField(_FILE)
    sha256 = serializers.RegexField(_SHA256)
    container = serializers.ChoiceField(choices=CONTAINERS)
    filename = serializers.CharField(max_length=200, allow_blank=True)
    transcript = serializers.CharField(max_length=20_000, trim_whitespace=False)
    measures = _MeasuresManifest()
    codes = serializers.ListField(child=_CodesManifest(), max_length=MAX_CODES_PER_CLIP)


class _ConsentManifest(StrictSerializer):
    statement = serializers.CharField(max_length=2000, trim_whitespace=False)
    by = serializers.CharField(max_length=200, trim_whitespace=False)
    at = serializers.DateTimeField()


class ManifestSerializer(StrictSerializer):
    """All members of a manifest; each is needed, and no other is taken."""

    format = serializers.ChoiceField(choices=[FORMAT])
    format_version = serializers.IntegerField()
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=2000, allow_blank=True, trim_whitespace=False)
    language = serializers.CharField(max_length=35, allow_blank=True, validators=[check_language])
    cache_codes = serializers.BooleanField()
    version = serializers.IntegerField(min_value=1, max_value=10**9)
    consent = _ConsentManifest()
    clips = _ClipManifest(many=True, allow_empty=False)


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
    serializer = ManifestSerializer(data=members)
    if not serializer.is_valid():
        items = list(error_items(serializer.errors))[:5]
        found = "; ".join(f"{item['attr']}: {item['detail']}" for item in items)
        raise invalid(f"The manifest cannot be used: {found}"[:1000])
    manifest: dict[str, Any] = serializer.validated_data
    _check_files(manifest, archive)
    return manifest


def _parse(content: bytes) -> dict[str, Any]:
    """Return the members of the JSON object."""
    try:
        members = json.loads(content.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{MANIFEST} cannot be read as JSON in UTF-8.") from error
    if not isinstance(members, dict):
        raise invalid(f"{MANIFEST} is not a JSON object.")
    return members


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


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
        where = (
            "is not listed in the manifest" if name in archive.names else "is not in the archive"
        )
        raise invalid(f"The file {name!r} {where}.")
