"""Read and write lexicons as the API has them."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.api.fields import (
    NOT_BLANK,
    NOT_BLANK_AT_ENDS,
    StrictNumberField,
    StrictTextField,
)
from synth.api.option_fields import LanguageField, StrictBooleanField
from synth.lexicons.store import MAX_INDEX, MODES, may_change
from synth.models import Lexicon, LexiconEntry
from synth.text.rules import MAX_RULE_CHARS
from ttsweb.http.api import StrictSerializer
from ttsweb.http.query_filters import names_filter

_KINDS_HELP = (
    "`word`: whole words; `literal`: this text anywhere; `regex`: a pattern of the Python "
    "library regex."
)


class LexiconVoiceSerializer(serializers.Serializer[Any]):
    """The voice that a lexicon belongs to."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class LexiconSerializer(serializers.ModelSerializer[Lexicon]):
    """A lexicon."""

    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices)
    voice = LexiconVoiceSerializer(allow_null=True)
    shared = serializers.SerializerMethodField(
        help_text="True: it applies to the texts of all users."
    )
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
        """Return whether you may change it."""
        return may_change(self.context["user"], lexicon)


class LexiconChangeSerializer(StrictSerializer):
    """Changes of a lexicon; with PATCH, fields that are left out do not change."""

    name = StrictTextField(max_length=100, pattern=NOT_BLANK_AT_ENDS)
    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices, default="named")
    voice = StrictTextField(
        required=False,
        allow_null=True,
        max_length=100,
        help_text="Id or name of the voice; only for the scope `voice`.",
    )
    language = LanguageField(
        required=False, allow_blank=True, help_text="Language of the texts; empty: any language."
    )
    enabled = StrictBooleanField(default=True)

    def validate_name(self, value: str) -> str:
        """Refuse a name that nobody can read."""
        if not value.strip() or value != value.strip():
            raise serializers.ValidationError(
                "Give a name without blanks at its start or end.", code="name_invalid"
            )
        return value


class LexiconCreateSerializer(LexiconChangeSerializer):
    """A lexicon to create."""

    shared = StrictBooleanField(
        default=False, help_text="True: it applies to all users; only an administrator may set it."
    )


class EntryRowSerializer(serializers.ModelSerializer[LexiconEntry]):
    """An entry: each `find` in a text is spoken as `say`."""

    kind = serializers.ChoiceField(choices=LexiconEntry.Kind.choices)

    class Meta:
        model = LexiconEntry
        fields = ("id", "index", "find", "say", "kind", "case_sensitive", "language", "enabled")
        read_only_fields = fields


class EntryChangeSerializer(StrictSerializer):
    """Changes of an entry; with PATCH, fields that are left out do not change."""

    find = StrictTextField(max_length=MAX_RULE_CHARS, pattern=NOT_BLANK)
    say = StrictTextField(
        max_length=MAX_RULE_CHARS, help_text="What is spoken instead; empty: nothing is spoken."
    )
    kind = serializers.ChoiceField(
        choices=LexiconEntry.Kind.choices, default="word", help_text=_KINDS_HELP
    )
    case_sensitive = StrictBooleanField(default=False)
    language = LanguageField(
        required=False,
        allow_blank=True,
        help_text="Language of the texts; empty: that of the lexicon.",
    )
    enabled = StrictBooleanField(default=True)
    index = StrictNumberField(
        low=0,
        high=MAX_INDEX,
        whole=True,
        required=False,
        help_text="Position among the entries; at the end if left out.",
    )


class LexiconFilterSerializer(StrictSerializer):
    """The filters of the list of lexicons."""

    scope = names_filter(
        Lexicon.Scope.values,
        f"One or more of {', '.join(Lexicon.Scope.values)}, separated by commas.",
    )
    name = serializers.CharField(
        required=False, max_length=100, help_text="Upper and lower case are the same."
    )

    def validate_name(self, value: str) -> Q:
        """Return what rows have to meet."""
        return Q(name__iexact=value)


class ExportQuerySerializer(StrictSerializer):
    """The format of a lexicon's file."""

    format = serializers.ChoiceField(choices=("csv", "pls"), default="csv")


class ImportQuerySerializer(StrictSerializer):
    """Whether a file's entries are added or replace the present ones."""

    mode = serializers.ChoiceField(choices=MODES, default="append")


class ImportFormSerializer(StrictSerializer):
    """A form with a file, CSV or PLS; the format is found by its first character."""

    file = serializers.FileField(max_length=255, allow_empty_file=True)
    mode = serializers.ChoiceField(choices=MODES, required=False)


class ImportedSerializer(serializers.Serializer[Any]):
    """The result of an import."""

    added = serializers.IntegerField()
    entries_total = serializers.IntegerField()
    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="The lines of the file that were left out, and the reasons.",
    )
