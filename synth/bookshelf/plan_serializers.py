"""Read edits of a book's plan, and write what answers show of it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.books.plan_edits import EDIT_NAMES
from synth.bookshelf.cast_fields import CREDITS, CastingField, CreditsField
from synth.option_fields import ListField, StrictBooleanField
from synth.request_fields import StrictNumberField
from ttsweb.api import StrictSerializer

MAX_EDITS = 5000

_TEXT = {"type": "string"}


@extend_schema_field(
    {
        "type": "object",
        "required": ["edit"],
        "additionalProperties": False,
        "properties": {
            "edit": {"type": "string", "enum": list(EDIT_NAMES)},
            "chapter": _TEXT,
            "chapters": {"type": "array", "items": _TEXT},
            "title": _TEXT,
            "voice": _TEXT,
            "language": _TEXT,
            "block": {"type": "integer"},
        },
    }
)
class EditField(serializers.Field[Any, Any, Any, Any]):
    """Take an edit as it is: the plan says what is wrong with it."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the edit."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("Expected an object.", code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        """Return the edit as it was made."""
        return value


class PlanPatchSerializer(StrictSerializer):
    """Edits of a plan, which are applied in their order; all of them hold or none."""

    edits = ListField(
        child=EditField(),
        most=MAX_EDITS,
        default=list,
        help_text="Each has `edit` and its fields: include, exclude (chapter), rename (chapter, "
        "title), merge (chapters), split (chapter, block, title), reorder (chapters), voice "
        "(chapter, voice), language (chapter, language).",
    )
    plan_number = StrictNumberField(
        low=1,
        high=2**31 - 1,
        whole=True,
        required=False,
        help_text="Of the plan that was looked at; where it is another one by now, nothing is "
        "changed.",
    )
    reset = StrictBooleanField(default=False, help_text="Take all earlier edits back first.")
    casting = CastingField(
        required=False,
        allow_null=True,
        help_text="In place of the one so far; null lets the narrator speak all.",
    )
    opening_credits = CreditsField(
        required=False, allow_null=True, help_text="Null for none, as an empty text."
    )
    closing_credits = CreditsField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values; what is to go is empty."""
        empty: dict[str, Any] = {"casting": {}} | dict.fromkeys(CREDITS, "")
        return {
            name: empty[name] if value is None and name in empty else value
            for name, value in attrs.items()
        }


class PlanChapterSerializer(serializers.Serializer[Any]):
    """A chapter of a plan."""

    index = serializers.IntegerField()
    id = serializers.CharField(help_text="Stays the same, whatever is edited.")
    title = serializers.CharField()
    level = serializers.IntegerField()
    parts = serializers.ListField(child=serializers.CharField())
    included = serializers.BooleanField()
    reason = serializers.CharField(allow_null=True, help_text="Why it is left out.")
    language = serializers.CharField()
    voice = serializers.CharField(help_text="Empty for the book's.")
    characters = serializers.IntegerField()
    seconds = serializers.FloatField()
    source_chars = serializers.IntegerField()
    blocks = serializers.IntegerField()
    speakers = serializers.ListField(child=serializers.CharField())


class PlanTotalsSerializer(serializers.Serializer[Any]):
    """What the included chapters come to."""

    chapters = serializers.IntegerField()
    characters = serializers.IntegerField()
    seconds = serializers.FloatField()
    hours = serializers.FloatField()


class PlanCompletenessSerializer(serializers.Serializer[Any]):
    """Where all characters of the book are, blanks left out."""

    source_chars = serializers.IntegerField()
    spoken = serializers.IntegerField()
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="By reason.")
    is_complete = serializers.BooleanField()


class SkippedBlockSerializer(serializers.Serializer[Any]):
    """Something in an included chapter that is not spoken."""

    chapter = serializers.CharField()
    reason = serializers.CharField()
    kind = serializers.CharField()
    source_chars = serializers.IntegerField()
    text = serializers.CharField(help_text="How it begins.")


class PlanCharacterSerializer(serializers.Serializer[Any]):
    """Somebody who speaks in a play, or whom a tag of the text names."""

    name = serializers.CharField()
    voice = serializers.CharField(help_text="Empty where the casting has none.")
    speeches = serializers.IntegerField()
    characters = serializers.IntegerField(help_text="Of all speeches.")
    example = serializers.CharField(help_text="How one of them begins.")


class PlanLanguageSerializer(serializers.Serializer[Any]):
    """A language of what is spoken."""

    language = serializers.CharField(help_text="Empty where the book names none.")
    characters = serializers.IntegerField()
    share = serializers.FloatField(min_value=0, max_value=1)
    voice = serializers.CharField(help_text="Empty where the narrator speaks it.")


class PlanDialogueSerializer(serializers.Serializer[Any]):
    """How much of what is spoken was found to be dialogue."""

    characters = serializers.IntegerField()
    share = serializers.FloatField(min_value=0, max_value=1)


class PlanSerializer(serializers.Serializer[Any]):
    """The plan of a book: what is spoken, what is skipped and why."""

    plan_number = serializers.IntegerField()
    title = serializers.CharField()
    authors = serializers.ListField(child=serializers.CharField())
    language = serializers.CharField()
    rules = serializers.DictField(child=serializers.CharField())
    chapters = PlanChapterSerializer(many=True)
    totals = PlanTotalsSerializer()
    completeness = PlanCompletenessSerializer()
    skipped = SkippedBlockSerializer(many=True)
    reasons = serializers.DictField(child=serializers.CharField(), help_text="In a sentence each.")
    warnings = serializers.ListField(child=serializers.CharField())
    edits = serializers.ListField(child=EditField())
    casting = CastingField(help_text="As it was given; empty where the narrator speaks all.")
    characters = PlanCharacterSerializer(many=True)
    languages = PlanLanguageSerializer(many=True)
    dialogue = PlanDialogueSerializer(
        allow_null=True, help_text="Null where dialogue is not looked for."
    )
    opening_credits = serializers.CharField(help_text="The template; empty for none.")
    closing_credits = serializers.CharField()
    credits = serializers.DictField(
        child=serializers.CharField(), help_text="The credits as they are spoken, by their field."
    )
    chars_per_second = serializers.FloatField(help_text="Of the voice, blanks counted.")
    is_rate_measured = serializers.BooleanField(
        help_text="Whether that was measured of this voice, and is not the usual one."
    )
    expected_seconds = serializers.FloatField(help_text="Of audio, without pauses.")
    expected_render_seconds = serializers.IntegerField(
        allow_null=True,
        help_text="Until the end, were it started now; null where nothing was rendered lately.",
    )
    expected_finish = serializers.DateTimeField(allow_null=True)
    expected_segments = serializers.IntegerField(
        allow_null=True,
        help_text="Of a book that was not started; about, where it is longer than a novel. Null "
        "where nobody can tell.",
    )
    expected_reused = serializers.IntegerField(
        allow_null=True, help_text="How many of them were spoken before and are not rendered."
    )
