"""Read what a request says of a batch: its items as they are, and what holds for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from synth.api.fields import StrictTextField, unless_skipped
from synth.api.jobs.requests import JobCreateSerializer
from ttsweb.http.api import StrictSerializer

REJECT, SKIP = "reject", "skip"
MAX_CUSTOM_ID_CHARS = 200
# Of the batch as a whole; an item cannot have its own.
BATCH_OPTIONS = ("priority", "webhook", "retention", "deadline")
# A clip for one job alone would be sent ten thousand times: a batch has voices.
NOT_OF_ITEMS = (*BATCH_OPTIONS, "reference", "references", "live")

ONLY_OF_LINES = "For a JSONL body only; a JSON body has a field of this name."


class BatchItemCreateSerializer(JobCreateSerializer):
    """An item to render: its `custom_id`, its text, and the options that differ."""

    custom_id = StrictTextField(
        required=False,
        min_length=1,
        max_length=MAX_CUSTOM_ID_CHARS,
        help_text=(
            "Your name for the item, unique in the batch. Items without one are named "
            "`item-00001`, `item-00002` and so on."
        ),
    )

    def get_fields(self) -> dict[str, Any]:
        """Return a job's fields without those that an item cannot have."""
        fields: dict[str, Any] = super().get_fields()
        return {name: field for name, field in fields.items() if name not in NOT_OF_ITEMS}

    def validate_custom_id(self, value: str) -> str:
        """Refuse names that no list could show."""
        if not value.strip() or not value.isprintable():
            raise serializers.ValidationError(
                "Expected 1 to 200 printable characters.", code="invalid"
            )
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace all fields by `order`; `custom_id` stays beside it."""
        custom_id = attrs.pop("custom_id", "")
        order = super().validate({**attrs, "priority": "bulk"})
        return {**order, "custom_id": custom_id}


class BatchDefaultsSerializer(BatchItemCreateSerializer):
    """Options for every item that sets no value itself."""

    def get_fields(self) -> dict[str, Any]:
        """Return an item's options, of which none has to be there."""
        fields = super().get_fields()
        return {name: field for name, field in fields.items() if name not in ("custom_id", "text")}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields: they are read once more with each item."""
        return attrs


class ItemsField(serializers.Field[Any, Any, Any, Any]):
    """Take a list as it is: what is wrong with an item is told with its place."""

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the list."""
        if not isinstance(data, list):
            raise serializers.ValidationError(
                'Expected a list of items, such as [{"text": "Hello."}].', code="invalid"
            )
        return data


class ItemsScheme(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # theirs
    """Describe the items in the OpenAPI schema."""

    target_class = "synth.api.batches.requests.ItemsField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the field's schema."""
        auto_schema.resolve_serializer(BatchItemCreateSerializer, direction)
        return {"type": "array", "items": {}, "minItems": 1}  # a rule says more of the items


@extend_schema_field(BatchDefaultsSerializer)
class DefaultsField(serializers.Field[Any, Any, Any, Any]):
    """Take an object of options; in a form or a query, where all is text, its spelling in JSON."""

    def get_value(self, dictionary: Any) -> Any:
        """Return what was sent; a form's nested names are not looked for."""
        return dictionary.get(self.field_name, empty)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the options as they were sent, once they are known to be good."""
        if self.context.get("is_form", False) and isinstance(data, str):
            try:
                data = json.loads(data)
            except (ValueError, RecursionError) as error:
                sentence = "Send `defaults` as a JSON object of options."
                raise serializers.ValidationError(sentence, code="invalid") from error
        if not isinstance(data, dict):
            raise serializers.ValidationError(
                "Send `defaults` as an object of options.", code="invalid"
            )
        BatchDefaultsSerializer().run_validation(data)
        return data


class _BatchFields(StrictSerializer):
    """What holds for a whole batch, however its items come."""

    defaults = DefaultsField(
        required=False, help_text="Options for every item that sets no value itself."
    )
    on_error = serializers.ChoiceField(
        choices=[REJECT, SKIP],
        default=REJECT,
        help_text=(
            "`reject`: if one item is invalid, nothing is queued. `skip`: valid items are "
            "queued, and invalid items are kept as failed."
        ),
    )

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, with those options of a job that are the batch's."""
        of_jobs: Mapping[str, Any] = JobCreateSerializer().get_fields()
        options = {name: of_jobs[name] for name in BATCH_OPTIONS if name in of_jobs}
        priority = serializers.ChoiceField(choices=["interactive", "bulk"], default="bulk")
        return {**super().get_fields(), **options, "priority": priority}


class BatchCreateSerializer(_BatchFields):
    """A batch in JSON: a list of items, and the options for all of them."""

    described_rules: ClassVar[Mapping[str, Any]] = unless_skipped("items", "BatchItemCreateRequest")

    items = ItemsField(help_text="At most 10,000 items.")


class BatchFormSerializer(_BatchFields):
    """A batch as an uploaded JSONL file; the other fields are those of JSON."""

    file = serializers.FileField(
        allow_empty_file=True,
        max_length=255,
        help_text="JSONL in UTF-8, with one item on each line.",
    )


class BatchQuerySerializer(_BatchFields):
    """The options of a batch whose body is JSONL; all of them are in the query."""


class BatchOptionsSerializer(BatchQuerySerializer):
    """The same for the API's description, but for `defaults`, whose text is JSON."""

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, each with where it belongs."""
        fields = {name: one for name, one in super().get_fields().items() if name != "defaults"}
        for field in fields.values():
            field.help_text = f"{ONLY_OF_LINES} {field.help_text or ''}".strip()
        return fields


def file_of(attrs: dict[str, Any]) -> UploadedFile[bytes]:
    """Take the uploaded file out of what a form said."""
    file: UploadedFile[bytes] = attrs.pop("file")
    return file
