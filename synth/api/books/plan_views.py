"""Serve the plan of a book over REST, its chapters block by block, and take edits of it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.fields import CREDITS, CastingField, CreditsField
from synth.api.books.views import find_book
from synth.api.fields import StrictNumberField
from synth.api.option_fields import ListField
from synth.audiobooks.casting import TITLES, credits_report
from synth.audiobooks.changes import MAX_EDITS, edit_plan, read_plan
from synth.audiobooks.expectations import expect, reading_rate
from synth.audiobooks.start import order_of
from synth.books.cast import Casting
from synth.books.plan import Plan, PlannedChapter
from synth.books.plan_cast import cast_report
from synth.books.plan_edits import EDIT_NAMES
from synth.jobs.orders import speakers_of
from synth.models import ApiKey, BookSource
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.nouns import operation, read_body
from ttsweb.http.query_filters import check_not_repeated
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice
from voices.models import Voice

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
            "reason": _TEXT,
        },
    }
)
class EditField(serializers.Field[Any, Any, Any, Any]):
    """Take an edit as it is: the plan says what is wrong with it."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError("Send each edit as an object.", code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        """Return the edit as it was made."""
        return value


class PlanPatchSerializer(StrictSerializer):
    """Edits of a plan, applied in their order. All are applied or none."""

    edits = ListField(
        child=EditField(),
        most=MAX_EDITS,
        default=list,
        help_text="Each edit has `edit` and its fields: include, exclude (chapter; or chapter and "
        "block; or reason, with or without chapter), rename (chapter, title), merge (chapters), "
        "split (chapter, block, title), reorder (chapters), voice (chapter, voice), language "
        "(chapter, language).",
    )
    plan_number = StrictNumberField(
        *(1, 2**31 - 1),
        whole=True,
        required=False,
        help_text="The `plan_number` of the plan that you read. If the plan has changed since, the "
        "request is refused and nothing changes.",
    )
    reset = StrictBooleanField(default=False, help_text="Remove all earlier edits first.")
    casting = CastingField(
        required=False,
        allow_null=True,
        help_text="Replaces the present casting; null: the narrator speaks everything.",
    )
    opening_credits = CreditsField(
        required=False, allow_null=True, help_text="Null or an empty text: none."
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
    id = serializers.CharField(help_text="Stays the same when the plan is edited.")
    title = serializers.CharField()
    level = serializers.IntegerField()
    parts = serializers.ListField(child=serializers.CharField())
    included = serializers.BooleanField()
    reason = serializers.CharField(allow_null=True, help_text="Why the chapter is left out.")
    language = serializers.CharField()
    voice = serializers.CharField(help_text="Empty if it is the book's voice.")
    characters = serializers.IntegerField()
    seconds = serializers.FloatField()
    source_chars = serializers.IntegerField()
    blocks = serializers.IntegerField()
    beginning = serializers.CharField(help_text="How the chapter's text begins.")
    speakers = serializers.ListField(child=serializers.CharField())


class PlanTotalsSerializer(serializers.Serializer[Any]):
    """Totals of the included chapters."""

    chapters = serializers.IntegerField()
    characters = serializers.IntegerField()
    seconds = serializers.FloatField()
    hours = serializers.FloatField()


class PlanLossSerializer(serializers.Serializer[Any]):
    """A part of the book that could not be read."""

    path = serializers.CharField(help_text="Its expected path in the file.")
    why = serializers.CharField()
    source_chars = serializers.IntegerField(help_text="0 if unknown.")
    text = serializers.CharField(help_text="How it begins; empty if unknown.")


class PlanCompletenessSerializer(serializers.Serializer[Any]):
    """What happens to each character of the book, blanks not counted."""

    source_chars = serializers.IntegerField()
    spoken = serializers.IntegerField()
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by reason.")
    missing = PlanLossSerializer(many=True)
    is_complete = serializers.BooleanField(
        help_text="True: each character is spoken or skipped for a known reason, and none is "
        "missing."
    )


class SkippedBlockSerializer(serializers.Serializer[Any]):
    """A part of an included chapter that is not spoken unless somebody includes it."""

    chapter = serializers.CharField()
    block = serializers.IntegerField(
        help_text="Its position; `include` and `exclude` take it as `block`."
    )
    included = serializers.BooleanField(help_text="Whether somebody has included it.")
    can_be_included = serializers.BooleanField(help_text="Whether it has text that can be spoken.")
    reason = serializers.CharField()
    kind = serializers.CharField()
    source_chars = serializers.IntegerField()
    text = serializers.CharField(help_text="How it begins.")


class PlanCharacterSerializer(serializers.Serializer[Any]):
    """A character of a play, or one that a tag in the text names."""

    name = serializers.CharField()
    voice = serializers.CharField(help_text="Empty if the casting gives no voice.")
    speeches = serializers.IntegerField()
    characters = serializers.IntegerField(help_text="Characters of all speeches.")
    example = serializers.CharField(help_text="How one of the speeches begins.")


class PlanLanguageSerializer(serializers.Serializer[Any]):
    """A language of the spoken text."""

    language = serializers.CharField(help_text="Empty if the book names no language.")
    characters = serializers.IntegerField()
    share = serializers.FloatField(min_value=0, max_value=1)
    voice = serializers.CharField(help_text="Empty if the narrator speaks it.")


class PlanDialogueSerializer(serializers.Serializer[Any]):
    """How much of the spoken text was recognised as dialogue."""

    characters = serializers.IntegerField()
    share = serializers.FloatField(min_value=0, max_value=1)


class PlanSerializer(serializers.Serializer[Any]):
    """The plan of a book: what is spoken, and what is skipped and why."""

    plan_number = serializers.IntegerField()
    title = serializers.CharField()
    authors = serializers.ListField(child=serializers.CharField())
    language = serializers.CharField()
    rules = serializers.DictField(child=serializers.CharField())
    chapters = PlanChapterSerializer(many=True)
    totals = PlanTotalsSerializer()
    completeness = PlanCompletenessSerializer()
    skipped = SkippedBlockSerializer(many=True)
    reasons = serializers.DictField(child=serializers.CharField(), help_text="One sentence each.")
    warnings = serializers.ListField(child=serializers.CharField())
    edits = serializers.ListField(child=EditField())
    casting = CastingField(
        help_text="The casting that was sent; empty if the narrator speaks everything."
    )
    characters = PlanCharacterSerializer(many=True)
    languages = PlanLanguageSerializer(many=True)
    dialogue = PlanDialogueSerializer(
        allow_null=True, help_text="Null if dialogue is not detected."
    )
    opening_credits = serializers.CharField(help_text="The template; empty if there is none.")
    closing_credits = serializers.CharField()
    credits = serializers.DictField(
        child=serializers.CharField(),
        help_text="The credits with the metadata filled in, by field.",
    )
    chars_per_second = serializers.FloatField(
        help_text="Characters per second of this voice, blanks included."
    )
    is_rate_measured = serializers.BooleanField(
        help_text="Whether the pace was measured for this voice; otherwise it is the usual pace."
    )
    expected_seconds = serializers.FloatField(help_text="Seconds of audio, without pauses.")
    expected_render_seconds = serializers.IntegerField(
        allow_null=True,
        help_text="Estimated seconds until the end if the book starts now; null if nothing was "
        "rendered lately.",
    )
    expected_finish = serializers.DateTimeField(allow_null=True)
    expected_segments = serializers.IntegerField(
        allow_null=True,
        help_text="For a book that was not started, an estimate if it is longer than a novel. Null "
        "if no estimate is possible.",
    )
    expected_reused = serializers.IntegerField(
        allow_null=True, help_text="Segments that were rendered before and are reused."
    )


def plan_answer(book: BookSource, plan: Plan) -> dict[str, Any]:
    """Return what `PlanSerializer` shows of a book's plan as it stands."""
    casting = Casting.of(book.casting)
    voices = _voices_of(book, casting)
    reader = voices.get("0")
    rate = reading_rate(reader.current_version) if reader is not None else None
    plan = plan if rate is None else replace(plan, chars_per_second=rate)
    report = cast_report(plan, casting)
    names = list(dict.fromkeys(voice.name for voice in voices.values()))
    spoken, warnings = credits_report(book, names)
    expected = expect(book, plan, is_measured=rate is not None)
    answer = plan.to_json()
    return {
        **answer,
        "warnings": [*answer["warnings"], *report["warnings"], *warnings],
        "plan_number": book.plan_number,
        "edits": book.edits,
        "casting": book.casting,
        "characters": report["characters"],
        "languages": report["languages"],
        "dialogue": report["dialogue"],
        **{field: book.production.get(field, "") for field in TITLES},
        "credits": spoken,
        "chars_per_second": expected.chars_per_second,
        "is_rate_measured": expected.is_measured,
        "expected_seconds": expected.seconds,
        "expected_render_seconds": expected.render_seconds,
        "expected_finish": expected.finish,
        "expected_segments": expected.reuse.segments if expected.reuse else None,
        "expected_reused": expected.reuse.reused if expected.reuse else None,
    }


def _voices_of(book: BookSource, casting: Casting) -> dict[str, Voice]:
    """Return the voices that would speak, by number or role; those that are gone are left out."""
    owner: AbstractBaseUser | None = book.owner
    order = order_of(book)
    named = speakers_of(order)[0] if order.voice or order.voices else {}
    wanted = [(str(speaker), str(voice)) for speaker, voice in sorted(named.items())]
    wanted += [(role.label, voice) for role, voice in casting.voices()]
    found: dict[str, Voice] = {}
    for role, voice in wanted:
        try:
            found[role] = find_voice(owner, voice)
        except SubmitRejectedError:
            continue  # told when it is started, or when it is given
    return found


MAX_BLOCKS = 500
EXCERPT_CHARS = 300


class BlockQuerySerializer(serializers.Serializer[Any]):
    """Which blocks are asked for."""

    offset = StrictNumberField(
        *(0, 10**9),
        whole=True,
        required=False,
        help_text="How many blocks to skip; 0 if left out.",
    )
    limit = StrictNumberField(
        *(1, MAX_BLOCKS),
        whole=True,
        required=False,
        help_text=f"How many blocks to return at most; {MAX_BLOCKS} if left out.",
    )


class BlockSerializer(serializers.Serializer[Any]):
    """One block of a chapter: a paragraph, a heading, a note, a line of verse."""

    index = serializers.IntegerField(help_text="The block's position; `split` takes it as `block`.")
    kind = serializers.CharField()
    text = serializers.CharField(help_text=f"Its first {EXCERPT_CHARS} characters.")
    source_chars = serializers.IntegerField(
        help_text="Characters of the whole block, without blanks."
    )
    reason = serializers.CharField(allow_null=True, help_text="Why it is not spoken.")
    can_be_included = serializers.BooleanField(help_text="Whether it has text that can be spoken.")
    speaker = serializers.CharField()
    language = serializers.CharField(help_text="Empty if it is the chapter's language.")


class ChapterBlocksSerializer(serializers.Serializer[Any]):
    """A chapter of a plan with its blocks."""

    plan_number = serializers.IntegerField()
    chapter = serializers.CharField()
    title = serializers.CharField()
    total = serializers.IntegerField(help_text="How many blocks the chapter has.")
    blocks = BlockSerializer(many=True)


class ChapterBlocksView(APIView):
    @operation(
        "get_book_chapter", ChapterBlocksSerializer, *(404, 409, 410), query=BlockQuerySerializer
    )
    def get(
        self, request: Request, book_id: uuid.UUID, chapter: str, query: dict[str, int]
    ) -> Response:
        """List the blocks of a chapter: how each begins, and why some are not spoken."""
        check_not_repeated(request)
        book = find_book(request, book_id)
        plan = read_plan(book)
        found = next((one for one in plan.chapters if one.id == chapter), None)
        if found is None:
            raise ApiProblem(
                404,
                "chapter_not_found",
                "The plan has no chapter with this id; get the plan again for its present ids.",
            )
        answer = {
            "plan_number": book.plan_number,
            "chapter": found.id,
            "title": found.title,
            "total": len(found.blocks),
            "blocks": _blocks(found, **query),
        }
        return Response(ChapterBlocksSerializer(answer).data)


def _blocks(
    chapter: PlannedChapter, *, offset: int = 0, limit: int = MAX_BLOCKS
) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "kind": planned.block.kind,
            "text": planned.block.text[:EXCERPT_CHARS],
            "source_chars": planned.block.source_chars,
            "reason": chapter.reason_of(planned),
            "can_be_included": planned.can_be_spoken,
            "speaker": planned.block.speaker,
            "language": planned.block.language,
        }
        for index, planned in enumerate(chapter.blocks[offset : offset + limit], offset)
    ]


class BookPlanView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("get_book_plan", PlanSerializer, 404, 409, 410)
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return what will be spoken of a book, and what is skipped and why."""
        book = find_book(request, book_id)
        return Response(PlanSerializer(plan_answer(book, read_plan(book))).data)

    @operation("change_book_plan", PlanSerializer, 404, 409, 410, request=PlanPatchSerializer)
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the plan of a book that was not started; all edits are applied or none."""
        edits = read_body(request, PlanPatchSerializer)
        book = find_book(request, book_id)
        plan = edit_plan(book, **edits, user=request.user)  # type: ignore[arg-type]  # never anonymous
        book = find_book(request, book_id)
        return Response(PlanSerializer(plan_answer(book, plan)).data)
