"""Read who speaks what of a book, its credits and its metadata, from a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.fields import empty

from synth.api.fields import NOT_BLANK, StrictTextField
from synth.api.option_fields import (
    JsonField,
    LanguageField,
    ListField,
    check_object,
    read_each,
)
from synth.audiobooks.plans import METADATA_FIELDS, METADATA_LISTS
from synth.books.rules import (
    MAX_CREDITS_CHARS,
    CreditsError,
    check_template,
    fold_name,
)
from synth.text.normalise import is_speakable
from ttsweb.http.api import StrictSerializer
from ttsweb.http.fields import SelfDescribingField

DIALOGUE_CHOICES = ("off", "detect")
MAX_CHARACTERS, MAX_CAST_LANGUAGES = 200, 50
MAX_CHARACTER_CHARS = 80
MAX_VOICE_CHARS = 100
CREDITS = ("opening_credits", "closing_credits")

_VOICE = {"type": "string", "minLength": 1, "maxLength": MAX_VOICE_CHARS, "pattern": NOT_BLANK}
_VOICES = {"type": "object", "additionalProperties": _VOICE}


def _describe(dialogue: str, **voice: Any) -> dict[str, Any]:
    """Return the description of a casting with dialogue off or detected."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "dialogue": {"type": "string", "enum": [dialogue]},
            **voice,
            "characters": _VOICES | {"maxProperties": MAX_CHARACTERS},
            "languages": _VOICES | {"maxProperties": MAX_CAST_LANGUAGES},
        },
        **({"required": ["dialogue", *voice]} if voice else {}),
    }


class VoiceNameField(StrictTextField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_VOICE_CHARS, **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        voice = super().run_validation(data)
        if voice is empty or voice is None:
            return voice
        if not voice.strip():
            raise serializers.ValidationError("Give the id or name of a voice.", code="blank")
        if not voice.isprintable():
            raise serializers.ValidationError(
                "A voice's name cannot have these characters; give the id or name of a voice.",
                code="text_invalid",
            )
        return voice


class _VoicesField(JsonField):
    """Take voices by keys that are read first.

    Args:
        read_key: returns a key as it is kept, and what it is compared by: no two may be the same.
        twice: the sentence for two that are.
    """

    def __init__(
        self, read_key: Callable[[str], tuple[str, str]], most: int, twice: str, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.read_key, self.most, self.twice = read_key, most, twice
        self.child = VoiceNameField()

    def read(self, data: Any) -> dict[str, str]:
        check_object(data, self.most)
        seen: dict[str, str] = {}

        def read_one(key: str, value: Any) -> tuple[str, str]:
            kept, folded = self.read_key(key)
            if folded in seen:
                sentence = self.twice.format(seen[folded], kept)
                raise serializers.ValidationError(sentence, code="name_twice")
            seen[folded] = kept
            return kept, self.child.run_validation(value)

        return read_each(data.items(), read_one)


def _read_character(name: str) -> tuple[str, str]:
    is_name = is_speakable(name) and name.isprintable() and not set(name) & set("|<>")
    if not is_name or len(name) > MAX_CHARACTER_CHARS or name.strip().isdecimal():
        raise serializers.ValidationError(
            f"A character's name has 1 to {MAX_CHARACTER_CHARS} characters, without |, < "
            "and >. Voices for numbered tags such as <|speaker:1|> belong in "
            "`voices`.",
            code="name_invalid",
        )
    return name, fold_name(name)


def _read_language(text: str) -> tuple[str, str]:
    tag = LanguageField().to_internal_value(text)  # nothing is a wrong tag here, not a blank field
    return tag, tag


class _CastingSerializer(StrictSerializer):
    dialogue = serializers.ChoiceField(choices=DIALOGUE_CHOICES, required=False)
    dialogue_voice = VoiceNameField(required=False)
    characters = _VoicesField(
        _read_character,
        MAX_CHARACTERS,
        "{!r} and {!r} are the same name; give each character once.",
        required=False,
    )
    languages = _VoicesField(
        _read_language,
        MAX_CAST_LANGUAGES,
        "The language {} is given twice; give it once.",
        required=False,
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse dialogue without a voice, and a voice without dialogue."""
        detects = attrs.get("dialogue", "off") == "detect"
        if detects == ("dialogue_voice" in attrs):
            return {name: value for name, value in attrs.items() if value not in ({}, "off")}
        sentence, code = "Choose a voice for the dialogue in `dialogue_voice`.", "required"
        if not detects:
            sentence, code = (
                '`dialogue_voice` works only with `"dialogue": "detect"`; send both or neither.',
                "casting_incomplete",
            )
        raise serializers.ValidationError({"dialogue_voice": [ErrorDetail(sentence, code=code)]})


@extend_schema_field({"oneOf": [_describe("off"), _describe("detect", dialogue_voice=_VOICE)]})
class CastingField(JsonField):
    """Take who speaks beside the narrator: dialogue, characters, languages; null for nobody."""

    def read(self, data: Any) -> dict[str, Any]:
        check_object(data)
        return dict(_CastingSerializer().run_validation(data))


class CreditsField(StrictTextField):
    """Take a template of credits; empty is none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_CREDITS_CHARS} | kwargs)

    def to_internal_value(self, data: Any) -> str:
        template = super().to_internal_value(data)
        try:
            check_template(template)
        except CreditsError as error:
            raise serializers.ValidationError(error.message, code=error.code) from error
        if "<|" in template:
            sentence = "The narrator speaks the credits; remove tags such as <|speaker:1|>."
            raise serializers.ValidationError(sentence, code="text_has_tags")
        if template and not is_speakable(template):
            raise serializers.ValidationError(
                "The credits have no letter or digit to speak; add some text, or leave the "
                "field out.",
                code="text_unspeakable",
            )
        return template


MAX_LINE_CHARS, MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 500, 300, 10_000
MOST_NAMES = 50
_DATE = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?")
_NUMBER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
_MAY_BE = r"^\s*({})?\s*$"  # the pattern of a line that may be empty
_LINES = frozenset("\n\t")


class LineField(StrictTextField):
    """Take a text of one line; blanks around it are cut off."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data).strip()
        if any(not c.isprintable() for c in text):
            sentence = "Expected one line without control characters."
            raise serializers.ValidationError(sentence, code="not_one_line")
        return text


class NameField(LineField):
    def run_validation(self, data: Any = empty) -> Any:
        found = super().run_validation(data)
        if found == "":
            raise serializers.ValidationError("Expected a name.", code="blank")
        return found


def _line_field(*, max_length: int = MAX_LINE_CHARS, **more: Any) -> LineField:
    return LineField(required=False, allow_null=True, max_length=max_length, **more)


class MetadataSerializer(StrictSerializer):
    """Metadata that replaces the values of a book's file; null restores the file's value.

    An empty text or list says that there is none, whatever the file says.
    """

    title = _line_field()
    subtitle = _line_field()
    series = _line_field()
    series_index = _line_field(
        max_length=10,
        pattern=_MAY_BE.format(_NUMBER.pattern),
        help_text='Position in the series, as text: "2" or "2.5".',
    )
    publisher = _line_field()
    date = _line_field(
        max_length=10,
        pattern=_MAY_BE.format(_DATE.pattern),
        help_text="Such as 1895, 1895-05 or 1895-05-07.",
    )
    description = StrictTextField(required=False, allow_null=True, max_length=MAX_DESCRIPTION_CHARS)
    language = LanguageField(required=False, allow_null=True)
    rights = _line_field()

    def get_fields(self) -> dict[str, Any]:
        """Return the fields in their order, with those that are lists of names."""
        names = {
            name: ListField(
                child=NameField(max_length=MAX_NAME_CHARS),
                most=MOST_NAMES,
                required=False,
                allow_null=True,
            )
            for name in METADATA_LISTS
        }
        fields = {**super().get_fields(), **names}
        return {name: fields[name] for name in METADATA_FIELDS}

    def validate_title(self, value: str | None) -> str | None:
        if value == "":
            raise serializers.ValidationError("Expected a title, or null.", code="blank")
        return value

    def validate_date(self, value: str | None) -> str | None:
        if value and not (_DATE.fullmatch(value) and _is_day(value)):
            sentence = "Expected a year, a month or a day, such as 1895, 1895-05 or 1895-05-07."
            raise serializers.ValidationError(sentence, code="date_invalid")
        return value

    def validate_series_index(self, value: str | None) -> str | None:
        if value and not _NUMBER.fullmatch(value):
            sentence = 'Send a number as text, such as "2" or "2.5".'
            raise serializers.ValidationError(sentence, code="number_invalid")
        return value

    def validate_description(self, value: str | None) -> str | None:
        if value and any(not c.isprintable() and c not in _LINES for c in value):
            sentence = "Expected a text without control characters."
            raise serializers.ValidationError(sentence, code="control_characters")
        return value


class MetadataField(SelfDescribingField, JsonField):
    """Take an object of metadata; in a form, where all is text, its spelling in JSON."""

    def read(self, data: Any) -> dict[str, Any]:
        """Return what was said; nulls stay, for whoever changes what was said before."""
        check_object(data)
        return dict(MetadataSerializer().run_validation(data))

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        return dict(auto_schema.resolve_serializer(MetadataSerializer, direction).ref)


class BookPatchSerializer(StrictSerializer):
    """The fields of a book that can be changed at any time."""

    metadata = MetadataField(
        help_text="Metadata that replaces the file's own. Fields that are left out do not change; "
        "null restores the file's value."
    )


def _is_day(text: str) -> bool:
    if len(text) < len("1895-05-07"):
        return True
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
