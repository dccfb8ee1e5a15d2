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
from synth.api.fields import (
    boolean,
    integer,
    moment,
    number,
    optional_whole,
    string,
    strings,
)
from synth.api.option_fields import ListField
from synth.audiobooks.casting import TITLES, credits_report
from synth.audiobooks.changes import MAX_EDITS, edit_plan, read_plan
from synth.audiobooks.expectations import expect, reading_rate
from synth.audiobooks.start import order_of
from synth.books.plan import Plan, PlannedChapter
from synth.books.plan_edits import EDIT_NAMES
from synth.books.plan_text import cast_report
from synth.books.rules import Casting
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
    plan_number = optional_whole(
        1,
        2**31 - 1,
        "The `plan_number` of the plan that you read. If the plan has changed since, the "
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

    index = integer()
    id = string("Stays the same when the plan is edited.")
    title = string()
    level = integer()
    parts = strings()
    included = boolean()
    reason = string("Why the chapter is left out.", null=True)
    language = string()
    voice = string("Empty if it is the book's voice.")
    characters = integer()
    seconds = number()
    source_chars = integer()
    blocks = integer()
    beginning = string("How the chapter's text begins.")
    speakers = strings()


class PlanTotalsSerializer(serializers.Serializer[Any]):
    """Totals of the included chapters."""

    chapters = integer()
    characters = integer()
    seconds = number()
    hours = number()


class PlanLossSerializer(serializers.Serializer[Any]):
    """A part of the book that could not be read."""

    path = string("Its expected path in the file.")
    why = string()
    source_chars = integer("0 if unknown.")
    text = string("How it begins; empty if unknown.")


class PlanCompletenessSerializer(serializers.Serializer[Any]):
    """What happens to each character of the book, blanks not counted."""

    source_chars = integer()
    spoken = integer()
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by reason.")
    missing = PlanLossSerializer(many=True)
    is_complete = boolean(
        "True: each character is spoken or skipped for a known reason, and none is missing."
    )


class SkippedBlockSerializer(serializers.Serializer[Any]):
    """A part of an included chapter that is not spoken unless somebody includes it."""

    chapter = string()
    block = integer("Its position; `include` and `exclude` take it as `block`.")
    included = boolean("Whether somebody has included it.")
    can_be_included = boolean("Whether it has text that can be spoken.")
    reason = string()
    kind = string()
    source_chars = integer()
    text = string("How it begins.")


class PlanCharacterSerializer(serializers.Serializer[Any]):
    """A character of a play, or one that a tag in the text names."""

    name = string()
    voice = string("Empty if the casting gives no voice.")
    speeches = integer()
    characters = integer("Characters of all speeches.")
    example = string("How one of the speeches begins.")


class PlanLanguageSerializer(serializers.Serializer[Any]):
    """A language of the spoken text."""

    language = string("Empty if the book names no language.")
    characters = integer()
    share = number(min_value=0, max_value=1)
    voice = string("Empty if the narrator speaks it.")


class PlanDialogueSerializer(serializers.Serializer[Any]):
    """How much of the spoken text was recognised as dialogue."""

    characters = integer()
    share = number(min_value=0, max_value=1)


class PlanSerializer(serializers.Serializer[Any]):
    """The plan of a book: what is spoken, and what is skipped and why."""

    plan_number = integer()
    title = string()
    authors = strings()
    language = string()
    rules = serializers.DictField(child=serializers.CharField())
    chapters = PlanChapterSerializer(many=True)
    totals = PlanTotalsSerializer()
    completeness = PlanCompletenessSerializer()
    skipped = SkippedBlockSerializer(many=True)
    reasons = serializers.DictField(child=serializers.CharField(), help_text="One sentence each.")
    warnings = strings()
    edits = serializers.ListField(child=EditField())
    casting = CastingField(
        help_text="The casting that was sent; empty if the narrator speaks everything."
    )
    characters = PlanCharacterSerializer(many=True)
    languages = PlanLanguageSerializer(many=True)
    dialogue = PlanDialogueSerializer(
        allow_null=True, help_text="Null if dialogue is not detected."
    )
    opening_credits = string("The template; empty if there is none.")
    closing_credits = string()
    credits = serializers.DictField(
        child=serializers.CharField(),
        help_text="The credits with the metadata filled in, by field.",
    )
    chars_per_second = number("Characters per second of this voice, blanks included.")
    is_rate_measured = boolean(
        "Whether the pace was measured for this voice; otherwise it is the usual pace."
    )
    expected_seconds = number("Seconds of audio, without pauses.")
    expected_render_seconds = integer(
        "Estimated seconds until the end if the book starts now; null if nothing was "
        "rendered lately.",
        null=True,
    )
    expected_finish = moment(null=True)
    expected_segments = integer(
        "For a book that was not started, an estimate if it is longer than a novel. Null "
        "if no estimate is possible.",
        null=True,
    )
    expected_reused = integer("Segments that were rendered before and are reused.", null=True)


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

    offset = optional_whole(0, 10**9, "How many blocks to skip; 0 if left out.")
    limit = optional_whole(
        1, MAX_BLOCKS, f"How many blocks to return at most; {MAX_BLOCKS} if left out."
    )


class BlockSerializer(serializers.Serializer[Any]):
    """One block of a chapter: a paragraph, a heading, a note, a line of verse."""

    index = integer("The block's position; `split` takes it as `block`.")
    kind = string()
    text = string(f"Its first {EXCERPT_CHARS} characters.")
    source_chars = integer("Characters of the whole block, without blanks.")
    reason = string("Why it is not spoken.", null=True)
    can_be_included = boolean("Whether it has text that can be spoken.")
    speaker = string()
    language = string("Empty if it is the chapter's language.")


class ChapterBlocksSerializer(serializers.Serializer[Any]):
    """A chapter of a plan with its blocks."""

    plan_number = integer()
    chapter = string()
    title = string()
    total = integer("How many blocks the chapter has.")
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
            sentence = (
                "The plan has no chapter with this id; get the plan again for its present ids."
            )
            raise ApiProblem(404, "chapter_not_found", sentence)
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
