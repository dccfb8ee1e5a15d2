"""Read who speaks what of a book, its credits and its metadata, from a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.fields import empty

from synth.api.fields import NOT_BLANK, StrictTextField
from synth.api.option_fields import JsonField, LanguageField, ListField
from synth.audiobooks.plans import METADATA_FIELDS, METADATA_LISTS
from synth.books.cast import MAX_CREDITS_CHARS, CreditsError, check_template, fold_name
from synth.text.languages import language_tag
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


@extend_schema_field({"oneOf": [_describe("off"), _describe("detect", dialogue_voice=_VOICE)]})
class CastingField(JsonField):
    """Take who speaks beside the narrator: dialogue, characters, languages; null for nobody."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.voice = StrictTextField(max_length=MAX_VOICE_CHARS)

    def read(self, data: Any) -> dict[str, Any]:
        """Return the casting; errors are named by their field."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Expected an object.", code="invalid")
        readers = {
            "dialogue": _dialogue,
            "dialogue_voice": self._voice,
            "characters": self._characters,
            "languages": self._languages,
        }
        found: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for name, value in data.items():
            if name not in readers:
                known = ", ".join(readers)
                sentence = f"There is no such field; allowed fields are {known}."
                errors[str(name)[:MAX_CHARACTER_CHARS]] = [
                    ErrorDetail(sentence, code="unknown_field")
                ]
                continue
            try:
                found[name] = readers[name](value)
            except serializers.ValidationError as error:
                errors[name] = error.detail
        if errors:
            raise serializers.ValidationError(errors)
        _check_dialogue(found)
        return {name: value for name, value in found.items() if value not in ({}, "off")}

    def _voice(self, value: Any) -> str:
        voice = self.voice.run_validation(value)
        if not voice.strip():
            raise serializers.ValidationError("Give the id or name of a voice.", code="blank")
        if not voice.isprintable():
            raise serializers.ValidationError(
                "A voice's name cannot have these characters; give the id or name of a voice.",
                code="text_invalid",
            )
        return str(voice)

    def _characters(self, data: Any) -> dict[str, str]:
        """Return voices by names; two that differ by case or blanks alone are one."""
        seen: dict[str, str] = {}

        def read_name(name: str) -> str:
            folded = fold_name(name)
            is_name = is_speakable(name) and name.isprintable() and not set(name) & set("|<>")
            if not is_name or len(name) > MAX_CHARACTER_CHARS or name.strip().isdecimal():
                raise serializers.ValidationError(
                    f"A character's name has 1 to {MAX_CHARACTER_CHARS} characters, without |, < "
                    "and >. Voices for numbered tags such as <|speaker:1|> belong in "
                    "`voices`.",
                    code="name_invalid",
                )
            if folded in seen:
                raise serializers.ValidationError(
                    f"{seen[folded]!r} and {name!r} are the same name; give each character once.",
                    code="name_twice",
                )
            seen[folded] = name
            return name

        return self._by_key(data, read_name, MAX_CHARACTERS)

    def _languages(self, data: Any) -> dict[str, str]:
        """Return voices by language tags in their usual spelling."""
        seen: set[str] = set()

        def read_tag(text: str) -> str:
            tag = language_tag(text)
            if tag is None:
                raise serializers.ValidationError(
                    "Expected a language tag such as en, pt-BR or zh-Hant.", code="language_invalid"
                )
            if tag in seen:
                raise serializers.ValidationError(
                    f"The language {tag} is given twice; give it once.", code="name_twice"
                )
            seen.add(tag)
            return tag

        return self._by_key(data, read_tag, MAX_CAST_LANGUAGES)

    def _by_key(self, data: Any, read_key: Any, most: int) -> dict[str, str]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Expected an object.", code="invalid")
        if len(data) > most:
            raise serializers.ValidationError(
                f"There are {len(data)} entries; at most {most} are allowed.", code="too_many"
            )
        found: dict[str, str] = {}
        errors: dict[str, Any] = {}
        for key, value in data.items():
            try:
                found[read_key(key)] = self._voice(value)
            except serializers.ValidationError as error:
                shown = key[:MAX_CHARACTER_CHARS].encode("utf-8", "replace").decode()
                errors[shown] = error.detail
        if errors:
            raise serializers.ValidationError(errors)
        return found


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
            raise serializers.ValidationError(
                "The narrator speaks the credits; remove tags such as <|speaker:1|>.",
                code="text_has_tags",
            )
        if template and not is_speakable(template):
            raise serializers.ValidationError(
                "The credits have no letter or digit to speak; add some text, or leave the "
                "field out.",
                code="text_unspeakable",
            )
        return template


def _dialogue(value: Any) -> str:
    if not isinstance(value, str) or value not in DIALOGUE_CHOICES:
        raise serializers.ValidationError(
            f"Expected one of {', '.join(DIALOGUE_CHOICES)}.", code="invalid_choice"
        )
    return value


def _check_dialogue(found: Mapping[str, Any]) -> None:
    """Refuse dialogue without a voice, and a voice without dialogue."""
    detects = found.get("dialogue", "off") == "detect"
    if detects and "dialogue_voice" not in found:
        raise serializers.ValidationError(
            {
                "dialogue_voice": [
                    ErrorDetail(
                        "Choose a voice for the dialogue in `dialogue_voice`.", code="required"
                    )
                ]
            }
        )
    if not detects and "dialogue_voice" in found:
        sentence = '`dialogue_voice` works only with `"dialogue": "detect"`; send both or neither.'
        detail = ErrorDetail(sentence, code="casting_incomplete")
        raise serializers.ValidationError({"dialogue_voice": [detail]})


MAX_LINE_CHARS, MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 500, 300, 10_000
MOST_NAMES = 50
_DATE = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])(-[0-9]{2})?)?")
_NUMBER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
_LINES = frozenset("\n\t")


class LineField(StrictTextField):
    """Take a text of one line; blanks around it are cut off."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text; one with control characters is an error."""
        text = super().to_internal_value(data).strip()
        if any(not c.isprintable() for c in text):
            raise serializers.ValidationError(
                "Expected one line without control characters.", code="not_one_line"
            )
        return text


class NameField(LineField):
    """Take a name, which is never empty."""

    def run_validation(self, data: Any = empty) -> Any:
        found = super().run_validation(data)
        if found == "":
            raise serializers.ValidationError("Expected a name.", code="blank")
        return found


class MetadataSerializer(StrictSerializer):
    """Metadata that replaces the values of a book's file; null restores the file's value.

    An empty text or list says that there is none, whatever the file says.
    """

    title = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    subtitle = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    series = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    series_index = LineField(
        required=False,
        allow_null=True,
        max_length=10,
        help_text=('Position in the series, as text: "2" or "2.5".'),
    )
    publisher = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    date = LineField(
        required=False,
        allow_null=True,
        max_length=10,
        help_text="Such as 1895, 1895-05 or 1895-05-07.",
    )
    description = StrictTextField(required=False, allow_null=True, max_length=MAX_DESCRIPTION_CHARS)
    language = LanguageField(required=False, allow_null=True)
    rights = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)

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
        """Refuse an empty title: a book without one has no name."""
        if value == "":
            raise serializers.ValidationError("Expected a title, or null.", code="blank")
        return value

    def validate_date(self, value: str | None) -> str | None:
        """Refuse what is no year, month or day."""
        if value and not (_DATE.fullmatch(value) and _is_day(value)):
            raise serializers.ValidationError(
                "Expected a year, a month or a day, such as 1895, 1895-05 or 1895-05-07.",
                code="date_invalid",
            )
        return value

    def validate_series_index(self, value: str | None) -> str | None:
        """Refuse what is no number."""
        if value and not _NUMBER.fullmatch(value):
            raise serializers.ValidationError(
                'Send a number as text, such as "2" or "2.5".', code="number_invalid"
            )
        return value

    def validate_description(self, value: str | None) -> str | None:
        """Refuse control characters other than ends of lines and tabs."""
        if value and any(not c.isprintable() and c not in _LINES for c in value):
            raise serializers.ValidationError(
                "Expected a text without control characters.", code="control_characters"
            )
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return what was said, as a plain object."""
        return dict(attrs)


class MetadataField(SelfDescribingField, JsonField):
    """Take an object of metadata; in a form, where all is text, its spelling in JSON."""

    def read(self, data: Any) -> dict[str, Any]:
        """Return what was said; nulls stay, for whoever changes what was said before."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Expected an object.", code="invalid")
        return dict(MetadataSerializer().run_validation(data))

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        return dict(auto_schema.resolve_serializer(MetadataSerializer, direction).ref)


class BookPatchSerializer(StrictSerializer):
    """The fields of a book that can be changed at any time."""

    metadata = MetadataField(
        help_text=(
            "Metadata that replaces the file's own. Fields that are left out do not change; "
            "null restores the file's value."
        )
    )


def _is_day(text: str) -> bool:
    """Say whether a date with a day is one of the calendar."""
    if len(text) < len("1895-05-07"):
        return True
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
