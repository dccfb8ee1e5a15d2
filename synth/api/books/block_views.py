"""Serve the texts of a plan's chapter, block by block: where it can be split, what is skipped."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.views import find_book
from synth.api.fields import StrictNumberField
from synth.audiobooks.changes import read_plan
from synth.books.plan import PlannedChapter
from ttsweb.http.api import ApiProblem
from ttsweb.http.nouns import read_query
from ttsweb.http.query_filters import check_not_repeated
from ttsweb.http.schema import problems

MAX_BLOCKS = 500
EXCERPT_CHARS = 300
_MOST = 10**9


class BlockQuerySerializer(serializers.Serializer[Any]):
    """Which blocks are asked for."""

    offset = StrictNumberField(
        low=0,
        high=_MOST,
        whole=True,
        required=False,
        help_text="How many blocks to skip; 0 if left out.",
    )
    limit = StrictNumberField(
        low=1,
        high=MAX_BLOCKS,
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
    """The blocks of a chapter."""

    @extend_schema(
        operation_id="get_book_chapter",
        parameters=[BlockQuerySerializer],
        responses={200: ChapterBlocksSerializer, **problems(400, 401, 404, 409, 410)},
    )
    def get(self, request: Request, book_id: uuid.UUID, chapter: str) -> Response:
        """List the blocks of a chapter: how each begins, and why some are not spoken."""
        check_not_repeated(request)
        query = read_query(request, BlockQuerySerializer, context={"is_form": True})
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
    found = []
    for index, planned in enumerate(chapter.blocks[offset : offset + limit], offset):
        reason = chapter.reason_of(planned)
        found.append(
            {
                "index": index,
                "kind": str(planned.block.kind),
                "text": planned.block.text[:EXCERPT_CHARS],
                "source_chars": planned.block.source_chars,
                "reason": None if reason is None else str(reason),
                "can_be_included": planned.can_be_spoken,
                "speaker": planned.block.speaker,
                "language": planned.block.language,
            }
        )
    return found
