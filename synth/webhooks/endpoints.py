"""Make, change and delete endpoints; let go of old deliveries and of secrets that sign no more.

What waits for an endpoint that is off is not sent any more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.transitions import fail_deliveries_to
from synth.webhooks.signing import PREVIOUS_SIGNS_FOR
from ttsweb import leases
from ttsweb.refusals import RefusedError

MOST_ENDPOINTS = 20


class TooManyEndpointsError(RefusedError):
    """A user has as many endpoints as a user may have."""


def create_endpoint(owner: AbstractBaseUser, values: Mapping[str, Any]) -> WebhookEndpoint:
    """Make an endpoint of checked values.

    Raises:
        TooManyEndpointsError: there are MOST_ENDPOINTS.
    """
    if WebhookEndpoint.objects.filter(owner_id=owner.pk).count() >= MOST_ENDPOINTS:
        raise TooManyEndpointsError(
            "too_many_endpoints",
            f"There are {MOST_ENDPOINTS} endpoints already, which is the limit for each "
            "user; delete one.",
        )
    return WebhookEndpoint.objects.create(owner_id=owner.pk, **values)


def change_endpoint(endpoint: WebhookEndpoint, values: Mapping[str, Any]) -> None:
    """Set checked values; what waits for the old URL, or for one that is now off, fails."""
    before = WebhookEndpoint(owner_id=endpoint.owner_id, url=endpoint.url)
    with transaction.atomic():
        for name, value in values.items():
            setattr(endpoint, name, value)
        if values:
            endpoint.save(update_fields=list(values))
        if not endpoint.enabled or endpoint.url != before.url:
            fail_deliveries_to(before)


def delete_endpoint(endpoint: WebhookEndpoint) -> None:
    """Delete an endpoint; what waits for it fails and stays in the list of deliveries."""
    with transaction.atomic():
        fail_deliveries_to(endpoint)
        endpoint.delete()


KEPT_FOR = dt.timedelta(days=30)


def forget_webhooks() -> int:
    """Delete deliveries that ended KEPT_FOR ago, and previous secrets; return how many of both."""
    now = leases.database_now()
    ended = WebhookDelivery.objects.filter(finished_at__lt=now - KEPT_FOR)
    deleted, _ = ended.delete()
    rotated = WebhookSecret.objects.filter(rotated_at__lt=now - PREVIOUS_SIGNS_FOR)
    return deleted + rotated.exclude(encrypted_previous="").update(encrypted_previous="")
