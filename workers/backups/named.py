"""Say which objects rows name, by which digest they can be known, and what to do without one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from django.core.files.storage import default_storage
from django.db.models import Model

from workers.orphans import key_columns

BLOCK_BYTES = 1 << 20
# The columns that hold the digest of the object which another one names.
_DIGESTS = {
    ("Export", "key"): "sha256",
    ("BookFile", "key"): "sha256",
    ("BookSource", "object_key"): "sha256",
    ("StoredClip", "original_key"): "fingerprint",
}
_FROM_BACKUP = "Bring it back from a backup: ./tts restore DIR --missing."
_REMEDIES = {
    ("Take", "audio_key"): "Bring it back from a backup (./tts restore DIR --missing), or render "
    "it again: POST /api/v1/jobs/{job}/segments/{segment}/render.",
    ("Take", "codes_key"): "Its audio does not need them; ./tts restore DIR --missing brings them "
    "back from a backup.",
    ("Export", "key"): "Bring it back from a backup (./tts restore DIR --missing), or send the "
    "job again: its takes are used again.",
    ("BookFile", "key"): "Bring it back from a backup (./tts restore DIR --missing), or delete "
    "the file and ask for it again: its takes are used again.",
    ("BookSource", "object_key"): "Bring it back from a backup (./tts restore DIR --missing), or "
    "upload the book again.",
    ("StoredClip", "original_key"): "Bring it back from a backup (./tts restore DIR --missing), "
    "or upload the clip again as a new version of its voice.",
    ("ClipCodes", "key"): "Nothing: the next worker that needs them encodes the clip again.",
    ("LiveChunk", "key"): "Nothing: it is a piece of live audio, which goes by itself.",
    ("Transcript", "original_key"): "Upload the clip again.",
}


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A row and the object that one of its columns names; `sha256` is "" where none is known."""

    model: type[Model]
    column: str
    pk: Any
    key: str
    sha256: str = ""

    @property
    def kind(self) -> str:
        """Return what documents call it, such as `take audio`."""
        what = self.column.removesuffix("_key").removesuffix("key").replace("_", " ")
        return f"{self.model._meta.verbose_name} {what}".strip()

    def is_named_still(self) -> bool:
        """Say whether the row is there and names the same object; it may have gone meanwhile."""
        return self.model._base_manager.filter(pk=self.pk, **{self.column: self.key}).exists()

    def remedy(self) -> str:
        name = (self.model.__name__, self.column)
        about = {"job": "JOB_ID", "segment": "SEGMENT_ID"}
        if self.model.__name__ == "Take":
            segments: Any = self.model._base_manager.get(pk=self.pk).segments  # type: ignore[attr-defined]
            if (row := segments.values_list("job", "pk").first()) is not None:
                about = {"job": str(row[0]), "segment": str(row[1])}
        return _REMEDIES.get(name, _FROM_BACKUP).format(**about)


def named_objects(using: str = "default") -> Iterator[NamedObject]:
    """Yield every object that a row of a database names; one that several name comes as often."""
    for model, column in key_columns():
        digest = _DIGESTS.get((model.__name__, column))
        rows = model._base_manager.using(using).exclude(**{column: ""}).order_by("pk")
        columns = ("pk", column, *([digest] if digest else []))
        for row in rows.values_list(*columns).iterator(chunk_size=2000):
            yield NamedObject(model, column, *row)


def count_named() -> int:
    return sum(
        model._base_manager.exclude(**{column: ""}).count() for model, column in key_columns()
    )


def digest_of(key: str, copy_to: IO[bytes] | None = None) -> tuple[str, int]:
    """Return the sha256 and the size of an object, and copy it on the way.

    Raises:
        FileNotFoundError: it is not stored.
        OSError: the storage, or what it is copied to, does not work.
    """
    digest, size = hashlib.sha256(), 0
    with default_storage.open(key) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            if copy_to is not None:
                copy_to.write(block)
    return digest.hexdigest(), size
