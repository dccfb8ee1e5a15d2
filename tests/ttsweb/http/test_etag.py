"""Weak tags: what matches, what does not, and what a 304 carries."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from ttsweb.http.etag import conditional, weak_etag

DATA = {"id": 1, "status": "queued"}


def answer_to(header: str | None, data: Any = DATA) -> Response:
    """Return the rendered answer of a view to a GET with this If-None-Match."""

    class OneView(APIView):
        authentication_classes = ()
        permission_classes = ()

        def get(self, request: Any) -> Response:
            return conditional(request, Response(data, headers={"Retry-After": "2"}))

    headers = {} if header is None else {"If-None-Match": header}
    response: Response = OneView.as_view()(APIRequestFactory().get("/", headers=headers))
    response.render()
    return response


def test_answer_carries_a_weak_tag_that_follows_its_content() -> None:
    tag = answer_to(None)["ETag"]
    assert tag == weak_etag(DATA) == answer_to(None)["ETag"]
    assert tag.startswith('W/"') and tag.endswith('"')
    assert answer_to(None, DATA | {"status": "running"})["ETag"] != tag


@pytest.mark.parametrize("form", ["{tag}", "{strong}", '"other", {tag}', "*"])
def test_known_answer_is_a_304_without_a_body(form: str) -> None:
    tag = weak_etag(DATA)
    response = answer_to(form.format(tag=tag, strong=tag.removeprefix("W/")))

    assert (response.status_code, response.content) == (304, b"")
    assert response["ETag"] == tag
    assert response["Retry-After"] == "2"
    assert response["Cache-Control"] == "private, no-cache"
    assert "Content-Type" not in response


@pytest.mark.parametrize("header", ["", '"other"', 'W/"other"', "no quotes", '"'])
def test_another_tag_gets_the_whole_answer(header: str) -> None:
    response = answer_to(header)
    assert (response.status_code, response.data) == (200, DATA)
