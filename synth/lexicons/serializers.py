"""Read and write lexicons as the API has them."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.lexicons.access import may_change
from synth.lexicons.keeping import MAX_INDEX, MODES
from synth.models import Lexicon, LexiconEntry
from synth.option_fields import LanguageField, StrictBooleanField
from synth.request_fields import NOT_BLANK, NOT_BLANK_AT_ENDS, StrictNumberField, StrictTextField
from synth.text.rules import MAX_RULE_CHARS
from ttsweb.api import StrictSerializer
from ttsweb.query_filters import DescribedField, read_choices, some_of

_KINDS_HELP = (
    "`word` stands between the edges of words, `literal` anywhere; `regex` is a pattern of the "
    "Python library of that name."
)


class LexiconVoiceSerializer(serializers.Serializer[Any]):
    """The voice whose words a lexicon is for."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class LexiconSerializer(serializers.ModelSerializer[Lexicon]):
    """A lexicon."""

    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices)
    voice = LexiconVoiceSerializer(allow_null=True)
    shared = serializers.SerializerMethodField(help_text="Whether it is everybody's.")
    may_change = serializers.SerializerMethodField()
    entries_total = serializers.IntegerField()

    class Meta:
        model = Lexicon
        fields = (
            "id",
            "name",
            "scope",
            "voice",
            "language",
            "enabled",
            "shared",
            "may_change",
            "entries_total",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    def get_shared(self, lexicon: Lexicon) -> bool:
        """Return whether it belongs to no user."""
        return lexicon.owner_id is None

    def get_may_change(self, lexicon: Lexicon) -> bool:
        """Return whether the user who asks may change it."""
        return may_change(self.context["user"], lexicon)


class LexiconChangeSerializer(StrictSerializer):
    """What can be changed of a lexicon; with `partial`, what is not given stays."""

    name = StrictTextField(max_length=100, pattern=NOT_BLANK_AT_ENDS)
    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices, default="named")
    voice = StrictTextField(
        required=False, allow_null=True, max_length=100, help_text="Id or name; scope `voice` only."
    )
    language = LanguageField(
        required=False, allow_blank=True, help_text="Empty: it applies to texts in any language."
    )
    enabled = StrictBooleanField(default=True)

    def validate_name(self, value: str) -> str:
        """Refuse a name that nobody can read."""
        if not value.strip() or value != value.strip():
            raise serializers.ValidationError(
                "Give a name without blanks at its ends.", code="name_invalid"
            )
        return value


class LexiconCreateSerializer(LexiconChangeSerializer):
    """A lexicon to be made."""

    shared = StrictBooleanField(
        default=False, help_text="Make it everybody's; only an administrator does."
    )


class EntryRowSerializer(serializers.ModelSerializer[LexiconEntry]):
    """An entry: where `find` stands, `say` is spoken."""

    kind = serializers.ChoiceField(choices=LexiconEntry.Kind.choices)

    class Meta:
        model = LexiconEntry
        fields = ("id", "index", "find", "say", "kind", "case_sensitive", "language", "enabled")
        read_only_fields = fields


class EntryChangeSerializer(StrictSerializer):
    """What can be changed of an entry; with `partial`, what is not given stays."""

    find = StrictTextField(max_length=MAX_RULE_CHARS, pattern=NOT_BLANK)
    say = StrictTextField(max_length=MAX_RULE_CHARS, help_text="May be empty: nothing is said.")
    kind = serializers.ChoiceField(
        choices=LexiconEntry.Kind.choices, default="word", help_text=_KINDS_HELP
    )
    case_sensitive = StrictBooleanField(default=False)
    language = LanguageField(
        required=False, allow_blank=True, help_text="Empty: that of the lexicon."
    )
    enabled = StrictBooleanField(default=True)
    index = StrictNumberField(
        low=0,
        high=MAX_INDEX,
        whole=True,
        required=False,
        help_text="Place among the entries; at the end unless given.",
    )


class LexiconFilterSerializer(StrictSerializer):
    """What a list of lexicons can be narrowed to."""

    scope = DescribedField(
        schema=some_of(Lexicon.Scope.values),
        required=False,
        help_text=f"Some of {', '.join(Lexicon.Scope.values)}, with commas.",
    )
    name = serializers.CharField(required=False, max_length=100, help_text="In any case.")

    def validate_scope(self, value: str) -> Q:
        """Return what rows have to meet."""
        return Q(scope__in=read_choices(value, Lexicon.Scope.values))

    def validate_name(self, value: str) -> Q:
        """Return what rows have to meet."""
        return Q(name__iexact=value)


class ExportQuerySerializer(StrictSerializer):
    """How a lexicon is written."""

    format = serializers.ChoiceField(choices=("csv", "pls"), default="csv")


class ImportQuerySerializer(StrictSerializer):
    """How a file joins what is there."""

    mode = serializers.ChoiceField(choices=MODES, default="append")


class ImportFormSerializer(StrictSerializer):
    """A file of a form, CSV or PLS by its first character."""

    file = serializers.FileField(max_length=255, allow_empty_file=True)
    mode = serializers.ChoiceField(choices=MODES, required=False)


class ImportedSerializer(serializers.Serializer[Any]):
    """What came of a file."""

    added = serializers.IntegerField()
    entries_total = serializers.IntegerField()
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="What was left out of the file, and why."
    )
