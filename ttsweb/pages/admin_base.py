"""What the admin's pages of all nouns share: rights, columns, filters, actions, deletion."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.text import capfirst
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList as UnfoldChangeList

from ttsweb.refusals import counted

_MOST_REFUSALS = 10
_MOST_NAMES = 3


class RightsMixin:
    """Rights over rows: those in `allowed`, as far as the user has them over `rights_of`."""

    model: type[Model]
    rights_of: type[Model] | None = None
    allowed: tuple[str, ...] = ("view",)
    owned: Callable[[Any, Any], bool] | None = None  # whether a row is a user's to change

    def has_right(self, request: HttpRequest, right: str) -> bool:
        """Return whether the user has a right over the model; who may change rows may see them."""
        options = (self.rights_of or self.model)._meta
        names = ("view", "change") if right == "view" else (right,)
        place = f"{options.app_label}.{{}}_{options.model_name}"
        return any(request.user.has_perm(place.format(name)) for name in names)

    def may_change_row(self, request: HttpRequest, row: Any) -> bool:
        return self.owned is None or self.owned(request.user, row)

    def _may(self, request: HttpRequest, right: str, row: Model | None) -> bool:
        if right not in self.allowed or not self.has_right(request, right):
            return False
        return row is None or self.may_change_row(request, row)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_right(request, "view")

    has_module_permission = has_view_permission

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return "add" in self.allowed and self.has_right(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may(request, "change", obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may(request, "delete", obj)

    def has_control_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let those act on rows who may change them, though nobody edits their fields."""
        return self.has_right(request, "change")


class RowsChangeList(UnfoldChangeList):
    """A page of rows for which the noun's page looks up at once what their cells show."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = self.model_admin.look_up(list(self.result_list))


class NounAdmin(RightsMixin, ModelAdmin):
    """A noun's list, page and actions, made of what the subclass declares.

    `visible` returns the rows that a user may see. `deletes` deletes a row as the domain does, and
    `deletion` says what goes with a `{row}`. `refusals` and `save_refusals` are the errors of
    actions and of saving whose sentences become messages. `pages` are further pages of a row: the
    name of each, its path below the row's, and the method that shows it.
    """

    visible: Callable[[Any], QuerySet[Any]] | None = None
    deletes: Callable[[Any], Any] = Model.delete
    refusals: tuple[type[Exception], ...] = ()
    save_refusals: tuple[type[Exception], ...] = ()
    deletion = ""
    pages: tuple[tuple[str, str, str], ...] = ()
    list_title = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        if self.visible is None:
            rows: QuerySet[Any] = super().get_queryset(request)
            return rows
        return type(self).visible(request.user)  # type: ignore[misc]  # a function, not a method

    def find_row(self, request: HttpRequest, pk: Any) -> Any:
        """Return a row that the user may see.

        Raises:
            Http404, PermissionDenied.
        """
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row

    def render_page(
        self, request: HttpRequest, template: str, title: str, context: dict[str, Any]
    ) -> HttpResponse:
        """Return a page in the admin's frame."""
        frame = {**self.admin_site.each_context(request), "title": title, "opts": self.opts}
        return TemplateResponse(request, template, frame | context)

    def get_urls(self) -> list[Any]:
        place = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        own = [
            path(f"<uuid:pk>/{below}", wrap(getattr(self, method)), name=f"{place}_{name}")
            for name, below, method in self.pages
        ]
        return [*own, *super().get_urls()]

    def look_up(self, rows: list[Any]) -> list[Any]:
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RowsChangeList

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {}

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        title = {"title": self.list_title} if self.list_title else {}
        return super().changelist_view(request, title | (extra_context or {}))  # type: ignore[no-any-return]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], **options: Any
    ) -> HttpResponse:
        row = options.get("obj")
        more = {} if row is None else self.page_context(request, row)
        return super().render_change_form(request, context | more, **options)  # type: ignore[no-any-return]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save; what is refused only while saving comes back as a message."""
        try:
            page: HttpResponse = super().changeform_view(
                request, object_id, form_url, extra_context
            )
            return page
        except self.save_refusals as error:
            text = str(error)
            if isinstance(error, OSError):
                text = f"Not saved: {error.strerror}."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.user = request.user
        return form

    def act_on_rows(
        self,
        request: HttpRequest,
        rows: Iterable[Any],
        work: Callable[[Any], Any],
        done: str,
        same: str = "did not need a change",
    ) -> None:
        """Do something with each row; say how many it changed, and why not the others.

        `work` returns False where a row is as it is to be.
        """
        changed, unchanged, refused = 0, [], []
        for row in rows:
            if not self.may_change_row(request, row):
                refused.append(f"{row}: not changed, as it is not yours.")
                continue
            try:
                if work(row) is False:
                    unchanged.append(str(row))
                else:
                    changed += 1
            except self.refusals as error:
                refused.append(f"{row}: {error}")
        if changed:
            self.message_user(request, f"{self._count(changed)}: {done}.")
        if unchanged:
            few = len(unchanged) <= _MOST_NAMES
            who = ", ".join(unchanged) if few else self._count(len(unchanged))
            self.message_user(request, f"{who}: {same}.", messages.WARNING)
        for sentence in refused[:_MOST_REFUSALS]:
            self.message_user(request, sentence, messages.WARNING)
        if len(refused) > _MOST_REFUSALS:
            more = f"{len(refused) - _MOST_REFUSALS} more were refused."
            self.message_user(request, more, messages.WARNING)

    def _count(self, number: int) -> str:
        options = self.opts
        return counted(number, str(options.verbose_name), str(options.verbose_name_plural))

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        if not self.deletion:
            found: tuple[list[Any], dict[str, int], set[str], list[str]]
            found = super().get_deleted_objects(objs, request)
            return found
        names = [capfirst(self.deletion.format(row=row)) for row in objs]
        allowed = all(self.has_delete_permission(request, row) for row in objs)
        missing = set() if allowed else {str(self.opts.verbose_name)}
        return names, {str(self.opts.verbose_name_plural): len(names)}, missing, []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        type(self).deletes(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            if self.may_change_row(request, row):
                type(self).deletes(row)


def row_action(
    name: str, label: str, done: str, work: Callable[[Any], Any], **more: str
) -> Callable[..., None]:
    """Return an action of a list: its name, its label, the outcome in words, the work on a row."""

    @admin.action(description=label, permissions=["control"])
    def act(page: NounAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        page.act_on_rows(request, rows, work, done, **more)

    act.__name__ = name
    return act


def page_action(
    name: str,
    label: str,
    title: str,
    description: str,
    work: Callable[[Any, HttpRequest, str], Any],
    right: str = "control",
) -> Callable[..., HttpResponse]:
    """Return an action of a row's page, which asks first; `work` gets page, request and key."""
    dialog = {"title": title, "description": description, "form_submit_text": label}

    @action(description=label, permissions=[right], dialog=dialog)
    def act(
        page: NounAdmin, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        work(page, request, object_id)
        place = f"{page.opts.app_label}_{page.opts.model_name}"
        url = reverse(f"admin:{place}_change", args=[object_id])
        return HttpResponse(headers={"HX-Redirect": url})

    act.__name__ = name
    return act  # type: ignore[no-any-return]  # Unfold's decorator


def column(
    title: str,
    read: Callable[[Any], Any],
    ordering: str | None = None,
    colours: dict[str, str] | None = None,
) -> Any:
    """Return a column of a list, or a field of a page, that `read` makes of a row.

    With `colours` of its values it is a badge.
    """

    @display(description=title, ordering=ordering, label=colours)
    def shown(page: Any, row: Any) -> Any:
        return read(row)

    return shown


class NamedValuesFilter(admin.AllValuesFieldListFilter):
    """All values that there are; the empty one is a link with words as well."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice in super().choices(changelist):
            shown = choice["display"] if str(choice["display"]).strip() else "not set"
            yield {**choice, "display": shown}


class BatchFilter(admin.SimpleListFilter):
    """Rows of one batch, to which the batch's page leads; rows of no batch; or all rows.

    `path` is the row's way to its batch; `single` and `every` are the values for rows of no batch
    and for all rows, of which one is None: that is what the list shows at first.
    """

    title = parameter_name = "batch"
    path = "batch"
    single: str | None = None
    every: str | None = None
    label = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        chosen, offered = self.value(), self.single or self.every or ""
        one = [(chosen, "of one batch")] if chosen and chosen != offered else []
        return [(offered, self.label), *one]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen == self.every:
            return queryset
        if chosen == self.single:
            return queryset.filter(**{f"{self.path}__isnull": True})
        try:
            return queryset.filter(**{self.path: uuid.UUID(chosen)})
        except ValueError:
            return queryset.none()
