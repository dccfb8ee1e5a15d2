"""Read request fields without guessing: a text is a text, a number is a number."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.utils.html import is_html_input

from synth.contract import Limits
from synth.jobs.orders import MAX_URL_CHARS, is_url, urls_are_off
from ttsweb.http.fields import NOT_BLANK as NOT_BLANK
from ttsweb.http.fields import SelfDescribingField
from voices.clip_checks import too_large

URL_PATTERN = r"^https?://[^\s/?#]"  # patterns of texts, for the API's description
NOT_BLANK_AT_ENDS = f"^{NOT_BLANK}(.*{NOT_BLANK})?$"
_WORD = "[A-Za-z0-9_.+-]+"
_DATA_URL = re.compile(f"data:({_WORD}/{_WORD})?(;{_WORD}={_WORD})*;base64,")
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"  # not empty
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,3})?", re.I)


def _answer_field(field: type[Any], **fixed: Any) -> Callable[..., Any]:
    """Return a function that declares a field of an answer by its help text.

    Its name is that of the type in OpenAPI. Fields of requests name their class: theirs are
    stricter, and take options that these functions would hide.
    """

    def declare(help_text: str | None = None, *, null: bool = False, **more: Any) -> Any:
        more |= {"allow_null": True} if null else {}
        return field(help_text=help_text, **{name: make() for name, make in fixed.items()}, **more)

    return declare


string = _answer_field(serializers.CharField)
strings = _answer_field(serializers.ListField, child=serializers.CharField)
integer = _answer_field(serializers.IntegerField)
integers = _answer_field(serializers.ListField, child=serializers.IntegerField)
number = _answer_field(serializers.FloatField)
boolean = _answer_field(serializers.BooleanField)
identifier = _answer_field(serializers.UUIDField)
moment = _answer_field(serializers.DateTimeField)


def unless_skipped(field: str, schema: str) -> dict[str, Any]:
    """Return the rule that rows of a list fit a schema, unless bad ones are to be skipped."""
    rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}
    skip = {"type": "string", "pattern": "^skip$"}
    return {
        "anyOf": [
            {"properties": {field: rows}},
            {"properties": {"on_error": skip}, "required": ["on_error"]},
        ]
    }


class StrictTextField(SelfDescribingField, serializers.CharField):
    """Take a JSON string as it is; DRF's own field would take numbers, and cut blanks off.

    Args:
        raw: let NUL and halves of surrogate pairs through, for a text whose user checks it.
        pattern: what the API's description says of the text; whoever reads the field checks it.
        described: more of what it says, likewise.
    """

    def __init__(
        self,
        *,
        raw: bool = False,
        pattern: str = "",
        described: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **kwargs)
        self.pattern = pattern
        self.described = described or {}
        if raw:
            self.validators = [
                check
                for check in self.validators
                if not type(check).__name__.startswith("Prohibit")  # what no database takes
            ]

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("Expected a text.", code="invalid")
        return data

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        pattern = {"pattern": self.pattern} if self.pattern else {}
        return {"type": "string", **pattern, **self.described}


class UrlField(StrictTextField):
    """Take a URL, as far as its start shows; an empty text is none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_URL_CHARS, pattern=URL_PATTERN, **kwargs)

    def get_value(self, dictionary: Any) -> Any:
        value = super().get_value(dictionary)
        return empty if value == "" and is_html_input(dictionary) else value

    def run_validation(self, data: Any = empty) -> Any:
        found = super().run_validation(data)
        if found == "":
            sentence = "Expected a URL; leave the field out for none."
            raise serializers.ValidationError(sentence, code="url_invalid")
        return found


class StrictNumberField(SelfDescribingField, serializers.Field[Any, Any, Any, Any]):
    """Take a finite JSON number in a range; in a form, where all is text, its spelling.

    Args:
        low, high: the range; `low_open` and `high_open` say that the end itself is outside.
        whole: take whole numbers only, not even 1.0.
    """

    def __init__(
        self,
        low: float,
        high: float,
        *,
        whole: bool = False,
        low_open: bool = False,
        high_open: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.limits = Limits(low, high, whole, low_open, high_open)

    def to_internal_value(self, data: Any) -> float:
        is_whole = self.limits.whole
        is_form_text = isinstance(data, str) and self.context.get("is_form", False)
        if is_form_text and (_WHOLE if is_whole else _DECIMAL).fullmatch(data):
            data = int(data) if is_whole else float(data)
        is_number = isinstance(data, int if is_whole else (int, float))
        # A huge int is a number to count with, and fails its range.
        is_finite = isinstance(data, int) or (is_number and math.isfinite(data))
        is_good = is_number and is_finite and not isinstance(data, bool)
        if not is_good or not self.limits.holds(data):
            code = "out_of_range" if is_good else "invalid"
            raise serializers.ValidationError(f"Expected {self.limits.words}.", code=code)
        return data  # type: ignore[no-any-return]  # one of the two by now

    def to_representation(self, value: Any) -> Any:
        return value

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        return {
            "type": "integer" if self.limits.whole else "number",
            "minimum": self.limits.low,
            "maximum": self.limits.high,
            **({"exclusiveMinimum": True} if self.limits.low_open else {}),
            **({"exclusiveMaximum": True} if self.limits.high_open else {}),
        }


def optional_whole(low: float, high: float, help_text: str, **more: Any) -> StrictNumberField:
    return StrictNumberField(low, high, whole=True, required=False, help_text=help_text, **more)


def optional_name(help_text: str, **more: Any) -> StrictTextField:
    """Return a field for the id or name of a voice or a lexicon."""
    return StrictTextField(required=False, max_length=100, help_text=help_text, **more)


def any_file(help_text: str | None = None, **more: Any) -> Any:
    """Return a field for a file; whoever reads it says what is wrong with it."""
    return serializers.FileField(allow_empty_file=True, max_length=255, help_text=help_text, **more)


@extend_schema_field({"type": "string", "pattern": f"^({_DATA_URL.pattern}{_BASE64}$|https?://)"})
class ReferenceAudioField(serializers.Field[Any, Any, Any, Any]):
    """Take a clip as `data:audio/wav;base64,…` of at most MAX_CLIP_BYTES decoded bytes.

    A URL of http or https is taken too, where TTS_URL_REFERENCES is on; the path of a file never.
    """

    def to_internal_value(self, data: Any) -> bytes | str:
        """Return the bytes, or the URL that they are to be fetched from.

        Raises:
            ClipRejectedError: clip_too_large, told by the length before anything is decoded.
            SubmitRejectedError: url_references_off.
        """
        if isinstance(data, str) and is_url(data):
            if not settings.URL_REFERENCES:
                raise urls_are_off().at("reference.audio")
            if len(data) > MAX_URL_CHARS:
                sentence = f"The URL is too long: at most {MAX_URL_CHARS} characters are allowed."
                raise serializers.ValidationError(sentence, code="url_invalid")
            return data
        found = _DATA_URL.match(data[:200]) if isinstance(data, str) else None
        if found is None:
            raise serializers.ValidationError(
                "Expected a text such as data:audio/wav;base64,… or an http(s) URL. File paths "
                "are not accepted.",
                code="not_a_data_url",
            )
        encoded = data[found.end() :]
        if len(encoded) > 4 * math.ceil(settings.MAX_CLIP_BYTES / 3):
            raise too_large().at("reference.audio")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            sentence = "The text after `base64,` is not valid base64."
            raise serializers.ValidationError(sentence, code="not_base64") from error
