"""Read what a request says of a batch of texts or of books: its rows, and what holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.fields import empty

from synth.api.books.fields import MetadataField
from synth.api.books.options import BookFormSerializer
from synth.api.fields import StrictTextField, UrlField, any_file, unless_skipped
from synth.api.jobs.requests import JobCreateSerializer
from synth.api.option_fields import JsonField, ListField
from synth.models import PRIORITIES, Batch
from ttsweb.http.api import StrictSerializer
from ttsweb.http.fields import NOT_BLANK, SelfDescribingField, StrictBooleanField

REJECT, SKIP = "reject", "skip"
MAX_CUSTOM_ID_CHARS = 200
MAX_FILENAME_CHARS = 255
MOST_APPROVED = 1_000
# Of the batch as a whole; an item cannot have its own.
BATCH_OPTIONS = ("priority", "webhook", "retention", "deadline")
# A clip for one job alone would be sent ten thousand times: a batch has voices.
NOT_OF_ITEMS = (*BATCH_OPTIONS, "reference", "references", "live")
# Of the upload itself, or decided by the batch.
NOT_OF_ENTRIES = ("file", "start", "book_batch", "entry")

ONLY_OF_LINES = "For a JSONL body only; a JSON body has a field of this name."

Reader = type[serializers.Serializer[Any]]


class RowsField(SelfDescribingField, JsonField):
    """Take the list of a batch's rows as it is: what is wrong with one is told with its place.

    Args:
        reader: reads a row; the description needs its schema, of which a rule says more.
        expected: the sentence for anything but a list.
        least: how many rows there have to be.
    """

    def __init__(self, reader: Reader, expected: str, *, least: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reader, self.expected, self.least = reader, expected, least

    def read(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            raise serializers.ValidationError(self.expected, code="invalid")
        return data

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        auto_schema.resolve_serializer(self.reader, direction)
        return {"type": "array", "items": {}} | ({"minItems": self.least} if self.least else {})


class DefaultsField(SelfDescribingField, JsonField):
    """Take the options for every row that sets no value itself; in a form their spelling in JSON.

    Args:
        reader: knows which options are good.
        expected: the sentence for anything but an object.
        not_json: the sentence for a text in a form or a query that is no JSON.
    """

    def __init__(self, reader: Reader, expected: str, not_json: str = "", **kwargs: Any) -> None:
        super().__init__(**{"required": False} | kwargs)
        self.reader, self.expected = reader, expected
        self.not_json = not_json or self.not_json

    def read(self, data: Any) -> dict[str, Any]:
        """Return the options as they were sent: they are read once more with each row."""
        if not isinstance(data, dict):
            raise serializers.ValidationError(self.expected, code="invalid")
        self.reader().run_validation(data)
        return data

    def describe(self, auto_schema: Any, direction: Any) -> Any:
        return auto_schema._map_serializer_field(self.reader(), direction)


def _errors_field(help_text: str) -> Any:
    return serializers.ChoiceField(choices=[REJECT, SKIP], default=REJECT, help_text=help_text)


class BatchItemCreateSerializer(JobCreateSerializer):
    """An item to render: its `custom_id`, its text, and the options that differ."""

    custom_id = StrictTextField(
        required=False,
        min_length=1,
        max_length=MAX_CUSTOM_ID_CHARS,
        help_text="Your name for the item, unique in the batch. Items without one are named "
        "`item-00001`, `item-00002` and so on.",
    )

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        return {name: field for name, field in fields.items() if name not in NOT_OF_ITEMS}

    def validate_custom_id(self, value: str) -> str:
        if not value.strip() or not value.isprintable():
            sentence = "Expected 1 to 200 printable characters."
            raise serializers.ValidationError(sentence, code="invalid")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace all fields by `order`; `custom_id` stays beside it."""
        custom_id = attrs.pop("custom_id", "")
        return {**super().validate({**attrs, "priority": "bulk"}), "custom_id": custom_id}


class BatchDefaultsSerializer(BatchItemCreateSerializer):
    """Options for every item that sets no value itself."""

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        return {name: field for name, field in fields.items() if name not in ("custom_id", "text")}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return attrs


class _TextsSerializer(StrictSerializer):
    """What holds for a whole batch of texts, however its items come."""

    defaults = DefaultsField(
        BatchDefaultsSerializer,
        "Send `defaults` as an object of options.",
        "Send `defaults` as a JSON object of options.",
        help_text="Options for every item that sets no value itself.",
    )
    on_error = _errors_field(
        "`reject`: if one item is invalid, nothing is queued. `skip`: valid items are "
        "queued, and invalid items are kept as failed."
    )

    def get_fields(self) -> dict[str, Any]:
        of_jobs: Mapping[str, Any] = JobCreateSerializer().get_fields()
        options = {name: of_jobs[name] for name in BATCH_OPTIONS if name in of_jobs}
        priority = serializers.ChoiceField(choices=["interactive", "bulk"], default="bulk")
        return {**super().get_fields(), **options, "priority": priority}


class BatchCreateSerializer(_TextsSerializer):
    """A batch in JSON: a list of items, and the options for all of them."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("items", "BatchItemCreateRequest")

    items = RowsField(
        BatchItemCreateSerializer,
        'Expected a list of items, such as [{"text": "Hello."}].',
        least=1,
        help_text="At most 10,000 items.",
    )


class BatchFormSerializer(_TextsSerializer):
    """A batch as an uploaded JSONL file; the other fields are those of JSON."""

    file = any_file("JSONL in UTF-8, with one item on each line.")


class BatchQuerySerializer(_TextsSerializer):
    """The options of a batch whose body is JSONL; all of them are in the query."""


class BatchOptionsSerializer(BatchQuerySerializer):
    """The same for the API's description, but for `defaults`, whose text is JSON."""

    def get_fields(self) -> dict[str, Any]:
        fields = {name: one for name, one in super().get_fields().items() if name != "defaults"}
        for field in fields.values():
            field.help_text = f"{ONLY_OF_LINES} {field.help_text or ''}".strip()
        return fields


class FilenameField(StrictTextField):
    """Take the name of a book's file as a manifest has it: a path below the manifest's folder."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_FILENAME_CHARS, pattern=NOT_BLANK, **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        """Return the name; one that no list could show, or that leads elsewhere, is an error."""
        name = super().run_validation(data)
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            sentence = f"Expected a file name of 1 to {MAX_FILENAME_CHARS} printable characters."
            raise serializers.ValidationError(sentence, code="file_invalid")
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or not parts[-1] or parts[0].endswith(":"):
            sentence = "Expected a path relative to the manifest's folder, without `..`."
            raise serializers.ValidationError(sentence, code="file_outside")
        return name


class ManifestEntrySerializer(BookFormSerializer):
    """A book of a batch: its file, and the options that differ from the batch's defaults."""

    def get_fields(self) -> dict[str, Any]:
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
        fields = super().get_fields()
        return {k: v for k, v in fields.items() if k not in ("file", "metadata")}


_NO_ENTRIES = "Expected a list of entries."
_ON_BAD_ENTRIES = (
    "`reject`: if one entry is invalid, nothing is created. `skip`: valid entries are created, "
    "and the response and the summary list the invalid ones."
)


class _BooksSerializer(StrictSerializer):
    """What holds for a whole batch of books, however its entries come."""

    name = StrictTextField(
        required=False, max_length=200, help_text="A name of your choice, shown in lists."
    )
    defaults = DefaultsField(
        EntryDefaultsSerializer,
        "Expected an object of options.",
        help_text="Options for every entry that sets no value itself.",
    )
    sample = serializers.ChoiceField(
        choices=Batch.Sample.choices,
        default=str(Batch.Sample.NONE),
        help_text="`first`: render one chapter of every book as a sample, then the rest. `hold`: "
        "render the samples, and the rest of each book after somebody approves its sample.",
    )
    webhook = UrlField(
        required=False, help_text="URL that gets a message when the batch has ended."
    )
    on_error = _errors_field(_ON_BAD_ENTRIES)
    closed = StrictBooleanField(
        default=False,
        help_text="True: no more entries and files will be added. The batch ends when all its "
        "books have ended.",
    )

    def validate_name(self, value: str) -> str:
        if not value.isprintable():
            raise serializers.ValidationError("Expected one line of text.", code="not_one_line")
        return value


class BookBatchCreateSerializer(_BooksSerializer):
    """A batch in JSON; the files of its entries are uploaded one by one."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("entries", "ManifestEntryRequest")

    entries = RowsField(
        ManifestEntrySerializer, _NO_ENTRIES, required=False, help_text="At most 1,000 books."
    )


class BookBatchFormSerializer(_BooksSerializer):
    """A batch as a form: a manifest, and files of its entries if they are few."""

    manifest = any_file("CSV with a header line, or JSONL; UTF-8; one book on each line.")
    files = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        required=False,
        help_text="The books' files, with the names that the entries use.",
    )


class EntriesCreateSerializer(StrictSerializer):
    """More entries of a batch, in JSON."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("entries", "ManifestEntryRequest")

    entries = RowsField(
        ManifestEntrySerializer,
        _NO_ENTRIES,
        help_text="More entries, in the same form as when the batch is created.",
    )
    on_error = _errors_field(_ON_BAD_ENTRIES)


class EntriesFormSerializer(StrictSerializer):
    """More entries of a batch, as a manifest."""

    manifest = any_file("CSV with a header, or JSONL; UTF-8.")
    on_error = _errors_field(_ON_BAD_ENTRIES)


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
    return PurePosixPath(name.replace("\\", "/")).name
