"""Serve previews over REST: what would be spoken, before anything is rendered."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.fields import StrictTextField, integer, number, optional_name, string, strings
from synth.api.jobs.requests import EntrySerializer
from synth.api.option_fields import LanguageField, ListField, PausesField, SpeakersField
from synth.jobs.options import MAX_JOB_ENTRIES, MAX_JOB_LEXICONS
from synth.jobs.planning import Order, PlannedText, Planner, changes_of
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.nouns import operation, read_body


class _TextSerializer(StrictSerializer):
    """The fields of every preview."""

    text = StrictTextField(raw=True, help_text="The text to speak.")
    language = LanguageField(
        required=False, help_text="Language of the text; the voice's language if left out."
    )
    lexicon = ListField(
        child=EntrySerializer(),
        most=MAX_JOB_ENTRIES,
        required=False,
        help_text="Entries for this request only.",
    )


class PreviewRequestSerializer(_TextSerializer):
    """The text and options of a job; each field has the same meaning as in a job."""

    voice = optional_name("Id or name of a voice.")
    voices = SpeakersField(
        child=StrictTextField(max_length=100),
        required=False,
        help_text="A voice for each number in the text's tags.",
    )
    lexicons = ListField(
        child=StrictTextField(max_length=100),
        most=MAX_JOB_LEXICONS,
        required=False,
        help_text="Ids or names of lexicons.",
    )
    normalise = StrictBooleanField(
        default=False, help_text="Spell out numbers, dates and the like."
    )
    pauses = PausesField(required=False, help_text="Lengths of pauses in ms, by name.")


class LexiconPreviewRequestSerializer(_TextSerializer):
    """A text, and either a lexicon or entries that are in no lexicon."""

    name = optional_name("Id or name of a lexicon, instead of entries in `lexicon`.")

    described_rules: ClassVar[dict[str, Any]] = {
        "oneOf": [{"required": ["name"]}, {"required": ["lexicon"]}]
    }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("name" in attrs) == ("lexicon" in attrs):
            sentence = "Send either `name`, the id or name of a lexicon, or entries in `lexicon`."
            raise ApiProblem(400, "lexicon_required", sentence, attr="name")
        return attrs


class ChangeSerializer(serializers.Serializer[Any]):
    """A change that a lexicon or the spelling out of numbers makes."""

    found = string()
    said = string()
    by = string("Name of the lexicon, `job` or `normalise`.")
    start = integer("Position in the text at which `found` begins, counted from 0.")


class PreviewSegmentSerializer(serializers.Serializer[Any]):
    """One segment as it would be rendered."""

    index = integer()
    text = string()
    spoken_text = string()
    speaker = integer()
    pause_after_ms = integer()
    characters = integer("Characters of the spoken text.")
    changes = ChangeSerializer(many=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """The segments and warnings of a job before it is rendered."""

    language = string()
    segments = PreviewSegmentSerializer(many=True)
    characters = integer("Characters of all spoken texts.")
    estimated_seconds = number("Estimated seconds of audio.")
    warnings = strings()


class LexiconPreviewSerializer(serializers.Serializer[Any]):
    """The segments that a lexicon changes; segments without a change are not listed."""

    language = string()
    segments_total = integer()
    segments_changed = integer()
    segments = PreviewSegmentSerializer(many=True)


class PreviewView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("preview", PreviewSerializer, 404, 409, 413, 415, request=PreviewRequestSerializer)
    def post(self, request: Request) -> Response:
        """Return the segments of a text as a job would speak them.

        Nothing is rendered or stored.
        """
        asked = read_body(request, PreviewRequestSerializer)
        owner: Any = request.user  # permission: never anonymous
        shown = Planner(owner).preview(Order(**asked))
        names = ("language", "characters", "estimated_seconds", "warnings")
        told = {name: getattr(shown, name) for name in names}
        return Response({**told, "segments": segment_rows(shown)})


class LexiconPreviewView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation(
        "preview_lexicon",
        LexiconPreviewSerializer,
        *(404, 409, 413, 415),
        request=LexiconPreviewRequestSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return the segments of a text that one lexicon changes, and how."""
        asked = dict(read_body(request, LexiconPreviewRequestSerializer))
        named = (asked.pop("name"),) if "name" in asked else ()
        owner: Any = request.user  # permission: never anonymous
        shown = Planner(owner).preview_lexicons(Order(**asked, lexicons=named))
        changed = [row for row in segment_rows(shown) if row["changes"]]
        answer = {
            "language": shown.language,
            "segments_total": len(shown.pieces),
            "segments_changed": len(changed),
            "segments": changed,
        }
        return Response(answer)


def segment_rows(shown: PlannedText) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "text": piece.text,
            "spoken_text": piece.spoken_text,
            "speaker": piece.speaker,
            "pause_after_ms": piece.pause_after_ms,
            "characters": len(piece.spoken_text),
            "changes": changes_of(piece),
        }
        for index, piece in enumerate(shown.pieces)
    ]
