"""Archives that lie, bombs and codes that are no codes: refused with a code, nothing kept."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_django import Settings
from rest_framework.test import APIClient
from safetensors.numpy import save

from tests.answers import refusal_of
from tests.voices.clips import CLIP, CODEC, CODES, Listing, start_worker
from tests.voices.test_portable import leave, send
from voices.archives import ImportRefusedError, check_codes
from voices.models import ClipCodes, StoredClip, Voice
from workers.rendering.codes import pack_codes

pytestmark = pytest.mark.django_db(transaction=True)

Entries = dict[str, bytes]
CODES_FILE = f"codes/0-{CODEC}.safetensors"
TEXTS = {"clip": "a" * 64, "codec": CODEC, "frames": "4", "resampler": "builtin"}


good: Entries = {}  # those of a good archive, which the first test makes


@pytest.fixture
def entries(request: pytest.FixtureRequest) -> Entries:
    """The entries of a good archive, whose voice is not there any more."""
    start_worker()
    if not good:
        content = leave(request.getfixturevalue("client"), request.getfixturevalue("voice"))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            good.update((name, archive.read(name)) for name in archive.namelist())
    return dict(good)


@pytest.fixture
def refused(client: APIClient, stored_objects: Listing) -> Callable[[bytes], tuple[int, str]]:
    """Return a function that sends an archive and sees that nothing of it was kept."""

    def refused(content: bytes) -> tuple[int, str]:
        answer = send(client, content)
        assert not Voice.objects.filter(deleted_at__isnull=True).exists()
        assert not StoredClip.objects.exists() and not ClipCodes.objects.exists()
        assert stored_objects() == []
        return refusal_of(answer)

    return refused


Refused = Callable[[bytes], tuple[int, str]]


def pack(entries: Entries, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def changed(entries: Entries, place: str, **members: Any) -> bytes:
    """Return an archive with other members in its manifest; one that is to be `...` is left out."""
    manifest = json.loads(entries["manifest.json"])
    clip = manifest["clips"][0]
    parts = {"clip": clip, "measures": clip["measures"], "codes": clip["codes"][0]}
    part = {"manifest": manifest, "consent": manifest["consent"], **parts}[place]
    part.update(members)
    for name in [name for name, value in members.items() if value is ...]:
        del part[name]
    return pack(entries | {"manifest.json": json.dumps(manifest).encode()})


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_archive_packed_again_by_another_program_is_taken(
    client: APIClient, entries: Entries
) -> None:
    with_folder: Entries = {"clips/": b""} | entries
    assert send(client, pack(with_folder, zipfile.ZIP_DEFLATED)).status_code == 201


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: b"no zip at all, but some bytes of text",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content + b"x",
        lambda content: b"x" + content,
        lambda content: content.replace(b"clips/0.wav", b"clips/9.wav", 1),
        lambda content: CLIP,
        lambda content: struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0),
    ],
    ids=["empty", "text", "cut", "half", "more behind", "more before", "names differ", "a clip",
         "no entries"],
)  # fmt: skip
def test_what_is_no_whole_archive_is_refused(
    spoil: Callable[[bytes], bytes], entries: Entries, refused: Refused
) -> None:
    status, code = refused(spoil(pack(entries)))
    assert (status, code) in {(400, "archive_invalid"), (400, "empty")}


def test_file_that_changed_on_the_way_or_before_is_found(
    entries: Entries, refused: Refused
) -> None:
    content = bytearray(pack(entries))
    content[content.find(CLIP) + 500] ^= 1
    assert refused(bytes(content)) == (400, "archive_invalid")
    for name in ("clips/0.wav", CODES_FILE):
        spoiled = entries[name][:-1] + bytes([entries[name][-1] ^ 1])
        assert refused(pack(entries | {name: spoiled})) == (400, "archive_digest_mismatch"), name


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("manifest", "format", "other"), ("manifest", "name", ...), ("manifest", "name", ""),
        ("manifest", "name", "x" * 101), ("manifest", "name", "a\0b"),
        ("manifest", "colour", "red"), ("manifest", "language", "no tag"),
        ("manifest", "clips", []), ("manifest", "clips", {}), ("manifest", "consent", None),
        ("consent", "statement", ...), ("consent", "at", "yesterday"),
        *(("clip", "file", path) for path in (
            "../../clips/0.wav", "/etc/passwd", "clips/../0.wav", "clips/7.wav", "clips/1.flac"
        )),
        ("clip", "sha256", "no digest"), ("clip", "container", "exe"),
        ("measures", "duration_seconds", 1e300), ("measures", "rms_dbfs", float("nan")),
        ("measures", "more", 1), ("codes", "codec_fingerprint", "C" * 64),
    ],
)  # fmt: skip
def test_manifest_with_something_wrong_in_it_is_refused(
    place: str, name: str, value: Any, entries: Entries, refused: Refused
) -> None:
    assert refused(changed(entries, place, **{name: value})) == (400, "archive_invalid")


@pytest.mark.parametrize(
    "more",
    [
        {"clips/9.wav": CLIP},  # which the manifest does not name
        *({"manifest.json": one} for one in (b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000)),
    ],
    ids=range(6),
)
def test_manifest_that_is_no_json_object_or_not_of_these_files_is_refused(
    more: Entries, entries: Entries, refused: Refused
) -> None:
    assert refused(pack(entries | more)) == (400, "archive_invalid")


def test_archive_of_a_later_format_is_refused_as_such(entries: Entries, refused: Refused) -> None:
    content = changed(entries, "manifest", format_version=2, more="yes")
    assert refused(content) == (400, "archive_version_unknown")


def test_entry_without_a_name_is_refused(entries: Entries, refused: Refused) -> None:
    buffer = io.BytesIO(pack(entries))
    with (
        zipfile.ZipFile(buffer, "a") as archive,
        archive.open(zipfile.ZipInfo(""), "w") as entry,
    ):
        entry.write(b"nothing has this name")
    assert refused(buffer.getvalue()) == (400, "archive_invalid")


def test_entry_that_is_there_twice_is_refused(entries: Entries, refused: Refused) -> None:
    buffer = io.BytesIO(pack(entries))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("clips/0.wav", CLIP)
    assert refused(buffer.getvalue()) == (400, "archive_invalid")


@pytest.mark.parametrize(
    ("limits", "more"),
    [
        ({}, {f"clips/{number}.wav": b"" for number in range(500)}),
        ({"MAX_CLIPS_PER_VOICE": 1}, {}),
        ({"MAX_BODY_BYTES": len(CLIP) + 1000}, {}),
        ({"MAX_CLIP_BYTES": 200_000}, {"clips/0.wav": bytes(10_000_000)}),
    ],
    ids=["entries", "clips", "together", "unpacked"],
)
def test_archive_above_a_limit_is_refused(
    entries: Entries, refused: Refused, settings: Settings, limits: dict[str, int], more: Entries
) -> None:
    for name, value in limits.items():
        setattr(settings, name, value)
    method = zipfile.ZIP_DEFLATED if "clips/0.wav" in more else zipfile.ZIP_STORED
    assert refused(pack(entries | more, method)) == (413, "archive_too_large")


def test_clip_whose_size_is_a_lie_is_counted(
    entries: Entries, refused: Refused, settings: Settings
) -> None:
    settings.MAX_CLIP_BYTES = 200_000
    bomb = pack(entries | {"clips/0.wav": bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    size = struct.pack("<L", 10_000_000)
    assert bomb.count(size) == 2
    status, code = refused(bomb.replace(size, struct.pack("<L", 100)))
    assert (status, code) in {(400, "archive_invalid"), (413, "archive_too_large")}


def test_clip_that_is_no_audio_is_refused(entries: Entries, refused: Refused) -> None:
    content = b"MZ" + bytes(1000)
    archive = changed(entries | {"clips/0.wav": content}, "clip", sha256=digest_of(content))
    assert refused(archive) == (400, "clip_not_audio")


@pytest.mark.parametrize(("clip", "codec"), [("a" * 64, CODEC), (digest_of(CLIP), "d" * 64)])
def test_codes_of_another_clip_or_codec_are_refused(
    clip: str, codec: str, entries: Entries, refused: Refused
) -> None:
    codes = pack_codes(CODES, clip=clip, codec=codec, resampler="builtin")
    archive = changed(entries | {CODES_FILE: codes}, "codes", sha256=digest_of(codes))
    assert refused(archive) == (400, "codes_invalid")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"short", b"\xff" * 200, struct.pack("<Q", 5) + b"[1,2]",
        save({"codes": CODES}, TEXTS)[:-1],
        save({"codes": CODES}, TEXTS) + b"\0\0",
        save({"codes": CODES}),
        save({"codes": CODES}, TEXTS | {"frames": "5"}),
        save({"codes": CODES}, TEXTS | {"more": "x"}),
        save({"codes": CODES, "other": CODES}, TEXTS),
        save({"codes": CODES.astype(np.int32)}, TEXTS),
        save({"codes": CODES[0]}, TEXTS),
        save({"codes": CODES - 1}, TEXTS),
        save({"codes": CODES[:, :0]}, TEXTS | {"frames": "0"}),
        save({"codes": np.zeros((65, 4), dtype=np.int16)}, TEXTS),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_no_whole_object_of_codes_is_refused(content: bytes) -> None:
    with pytest.raises(ImportRefusedError) as refusal:
        check_codes(content)
    assert refusal.value.code == "codes_invalid"


def test_codes_that_a_worker_wrote_are_taken() -> None:
    checked = check_codes(pack_codes(CODES, clip="a" * 64, codec=CODEC, resampler="builtin"))
    assert (checked.codebooks, checked.frames, checked.resampler) == (10, 4, "builtin")


def test_request_is_refused_by_the_field_at_fault(client: APIClient, entries: Entries) -> None:
    archive = pack(entries)
    unknown = send(client, archive, colour="red")
    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_field")
    blank = send(client, archive, name=" ")  # not taken for none
    assert (blank.status_code, blank.json()["errors"][0]["attr"]) == (400, "name")
    bare = client.post("/api/v1/voices/import", {"name": "Ada"}, format="multipart")
    assert (bare.status_code, bare.json()["errors"][0]["attr"]) == (400, "archive")
    assert not Voice.objects.filter(deleted_at__isnull=True).exists()
