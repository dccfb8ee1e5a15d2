"""Make, change and delete endpoints; what waits for one that is off is not sent any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from synth.models import WebhookEndpoint
from synth.transitions import fail_deliveries_to
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
