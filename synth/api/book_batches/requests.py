"""Read what a request says of a batch of books: its entries, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from synth.api.books.metadata_fields import MetadataField
from synth.api.books.options import BookFormSerializer
from synth.api.fields import NOT_BLANK, StrictTextField, UrlField, unless_skipped
from synth.api.option_fields import JsonField, ListField, StrictBooleanField
from synth.models import PRIORITIES, Batch
from ttsweb.http.api import StrictSerializer

REJECT, SKIP = "reject", "skip"
MAX_FILENAME_CHARS = 255
MOST_APPROVED = 1_000
# Of the upload itself, or decided by the batch.
NOT_OF_ENTRIES = ("file", "start", "book_batch", "entry")


class FilenameField(StrictTextField):
    """Take the name of a book's file as a manifest has it: a path below the manifest's folder."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_FILENAME_CHARS, pattern=NOT_BLANK, **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the name; one that no list could show, or that leads elsewhere, is an error."""
        name = super().run_validation(data)
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise serializers.ValidationError(
                f"Expected a file name of 1 to {MAX_FILENAME_CHARS} printable characters.",
                code="file_invalid",
            )
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or not parts[-1] or parts[0].endswith(":"):
            raise serializers.ValidationError(
                "Expected a path relative to the manifest's folder, without `..`.",
                code="file_outside",
            )
        return name


class ManifestEntrySerializer(BookFormSerializer):
    """A book of a batch: its file, and the options that differ from the batch's defaults."""

    def get_fields(self) -> dict[str, Any]:
        """Return the fields of an upload, with the file's name in place of the file."""
        fields = super().get_fields()
        own = {name: field for name, field in fields.items() if name not in NOT_OF_ENTRIES}
        metadata = MetadataField(
            required=False,
            help_text="Title, authors and other metadata; they replace what the file says.",
        )
        return {"file": FilenameField(), **own, "metadata": metadata}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return what was read; it is read once more, with the defaults, when the file comes."""
        return attrs


class EntryDefaultsSerializer(ManifestEntrySerializer):
    """Options for every entry that sets no value itself."""

    def get_fields(self) -> dict[str, Any]:
        """Return the fields that several books can share."""
        fields = super().get_fields()
        return {k: v for k, v in fields.items() if k not in ("file", "metadata")}


@extend_schema_field(EntryDefaultsSerializer)
class DefaultsField(JsonField):
    """Take an object of options; in a form its spelling in JSON."""

    def read(self, data: Any) -> dict[str, Any]:
        """Return the options as they were sent, once they are known to be good."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("Expected an object of options.", code="invalid")
        EntryDefaultsSerializer().run_validation(data)
        return data


class EntriesField(JsonField):
    """Take a list as it is: what is wrong with an entry is told with its place."""

    def read(self, data: Any) -> list[Any]:
        """Return the list."""
        if not isinstance(data, list):
            raise serializers.ValidationError("Expected a list of entries.", code="invalid")
        return data


class EntriesScheme(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # theirs
    """Describe the entries in the OpenAPI schema."""

    target_class = "synth.api.book_batches.requests.EntriesField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the field's schema."""
        auto_schema.resolve_serializer(ManifestEntrySerializer, direction)
        return {"type": "array", "items": {}}  # a rule says more of the entries


class _ErrorsField(serializers.ChoiceField):
    """Take what is done about entries that are wrong."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **{
                "choices": [REJECT, SKIP],
                "default": REJECT,
                "help_text": (
                    "`reject`: if one entry is invalid, nothing is created. `skip`: valid "
                    "entries are created, and the response and the summary list the invalid "
                    "ones."
                ),
            }
            | kwargs
        )


class _BatchFields(StrictSerializer):
    """What holds for a whole batch, however its entries come."""

    name = StrictTextField(
        required=False, max_length=200, help_text="A name of your choice, shown in lists."
    )
    defaults = DefaultsField(
        required=False, help_text="Options for every entry that sets no value itself."
    )
    sample = serializers.ChoiceField(
        choices=Batch.Sample.choices,
        default=str(Batch.Sample.NONE),
        help_text=(
            "`first`: render one chapter of every book as a sample, then the rest. `hold`: "
            "render the samples, and the rest of each book after somebody approves its sample."
        ),
    )
    webhook = UrlField(
        required=False, help_text="URL that gets a message when the batch has ended."
    )
    on_error = _ErrorsField()
    closed = StrictBooleanField(
        default=False,
        help_text=(
            "True: no more entries and files will be added. The batch ends when all its books "
            "have ended."
        ),
    )

    def validate_name(self, value: str) -> str:
        """Refuse names that no list could show."""
        if not value.isprintable():
            raise serializers.ValidationError("Expected one line of text.", code="not_one_line")
        return value


class BookBatchCreateSerializer(_BatchFields):
    """A batch in JSON; the files of its entries are uploaded one by one."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("entries", "ManifestEntryRequest")

    entries = EntriesField(required=False, help_text="At most 1,000 books.")


class BookBatchFormSerializer(_BatchFields):
    """A batch as a form: a manifest, and files of its entries if they are few."""

    manifest = serializers.FileField(
        allow_empty_file=True,
        max_length=255,
        help_text="CSV with a header line, or JSONL; UTF-8; one book on each line.",
    )
    files = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        required=False,
        help_text="The books' files, with the names that the entries use.",
    )


class EntriesCreateSerializer(StrictSerializer):
    """More entries of a batch, in JSON."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("entries", "ManifestEntryRequest")

    entries = EntriesField(help_text="More entries, in the same form as when the batch is created.")
    on_error = _ErrorsField()


class EntriesFormSerializer(StrictSerializer):
    """More entries of a batch, as a manifest."""

    manifest = serializers.FileField(
        allow_empty_file=True, max_length=255, help_text="CSV with a header, or JSONL; UTF-8."
    )
    on_error = _ErrorsField()


class ApproveBooksSerializer(StrictSerializer):
    """The samples to approve; all if none are named."""

    books = ListField(
        child=serializers.UUIDField(),
        most=MOST_APPROVED,
        required=False,
        help_text="Ids of books; all books of the batch if left out.",
    )


class PrioritySerializer(StrictSerializer):
    """The new priority of a batch and its books."""

    priority = serializers.ChoiceField(choices=list(PRIORITIES))


def last_part(name: str) -> str:
    """Return the file's own name of a path in a manifest."""
    return PurePosixPath(name.replace("\\", "/")).name
