"""Find the admin's pages, read them, and act on rows in their lists."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.test import Client
from django.urls import reverse


def page_of(row: Model, name: str = "change", *more: Any, model: str = "") -> str:
    """Return the path of a page of a row; `model` names the admin of a proxy."""
    known = model or row._meta.model_name
    return reverse(f"admin:synth_{known}_{name}", args=[row.pk, *more])


def read(browser: Client, path: str, query: dict[str, Any] | None = None) -> str:
    """Return the text of a page."""
    return browser.get(path, query).content.decode()


def act(browser: Client, action: str, *rows: Model, model: str = "", **fields: str) -> str:
    """Choose rows in their list and do an action; return the page that follows."""
    path = reverse(f"admin:synth_{model or rows[0]._meta.model_name}_changelist")
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows]} | fields
    return browser.post(path, data, follow=True).content.decode()


def delete(browser: Client, *rows: Model, model: str = "") -> None:
    """Delete rows by their list, and say yes."""
    act(browser, "delete_selected", *rows, model=model, post="yes")
