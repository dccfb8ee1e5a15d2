"""A superuser who is logged in; a file that needs another person has an `operator` of its own."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import logged_in, make_user


@pytest.fixture
def operator(job_services: None) -> User:
    return make_user("operator", is_superuser=True)


@pytest.fixture
def browser(operator: User) -> Client:
    """A client that is logged in as the operator."""
    return logged_in(operator)
