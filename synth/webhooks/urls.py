"""Refuse a webhook's URL as far as that can be told before it is used."""

from __future__ import annotations

from django.conf import settings

from synth.jobs.rejections import SubmitRejectedError
from ttsweb.http.guarded_url import FetchError, check_url


def check_webhook_url(url: str) -> None:
    """Return if messages may be sent to a URL as it is written.

    No name server is asked here: a name may lead elsewhere tomorrow, so its addresses are checked
    at each delivery.

    Raises:
        SubmitRejectedError: url_invalid, url_scheme, or url_private_address in whatever spelling.
    """
    try:
        check_url(url, allow_private=settings.ALLOW_PRIVATE_URLS)
    except FetchError as error:
        raise SubmitRejectedError(error.code, str(error), attr="webhook") from error
