"""Let people in, and show them their own account."""

from __future__ import annotations

import logging
import time
from typing import Any

import segno
from django.conf import settings
from django.contrib import admin, auth, messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from unfold.forms import AuthenticationForm

from synth.accounts import sign_in
from synth.accounts.sign_in import Attempt, LockedOutError
from synth.api.authentication import client_address
from synth.models import NoticeWish, SecondFactor
from ttsweb.configuration.library import ADMIN_CONTENT_POLICY, CONTENT_POLICY_HEADER
from ttsweb.http.problems import STATUSES, status_of
from ttsweb.pages.middleware import note_try

logger = logging.getLogger(__name__)

_BACKEND = "django.contrib.auth.backends.ModelBackend"
_PENDING = "sign_in_pending"  # of the session: whose password was right, and until when
_PENDING_SECONDS = 300


class SignInForm(AuthenticationForm):
    """A name and a password, of which too many wrong ones are not looked at."""

    def clean(self) -> Any:
        """Check them.

        Raises:
            ValidationError: sign_in_locked, or Django's own.
        """
        name = self.cleaned_data.get("username")
        if not name or not self.cleaned_data.get("password"):
            return super().clean()
        tried = sign_in.name_of_tried(name)
        try:
            attempt = Attempt(name, client_address(self.request))
        except LockedOutError as error:
            note_try(self.request, tried, is_noted=error.is_noted)
            raise ValidationError(str(error), code=error.code) from error
        note_try(self.request, tried)
        cleaned = super().clean()
        attempt.succeed()
        return cleaned


@method_decorator([never_cache, sensitive_post_parameters("password")], name="dispatch")
class SignInView(LoginView):
    """The admin's log-in, with the ways in beside it; a second factor is asked for afterwards."""

    authentication_form = SignInForm
    template_name = "ttsweb/sign_in.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Ask nobody who is signed in: what is tried there would be written down as theirs."""
        if request.user.is_authenticated:  # also whom a proxy names
            request.is_audited = False  # type: ignore[attr-defined]  # nobody signs in
            if admin.site.has_permission(request):
                return redirect(self.get_success_url())
            return redirect("account")
        return super().dispatch(request, *args, **kwargs)

    def get_default_redirect_url(self) -> str:
        return reverse("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(
            **admin.site.each_context(self.request),
            title="Log in",
            app_path=self.request.get_full_path(),
            provider=settings.OIDC,
            **kwargs,
        )

    def form_valid(self, form: Any) -> HttpResponse:
        user = form.get_user()
        if not sign_in.has_second_factor(user):
            return super().form_valid(form)
        # Not logged in yet. Another session than before: what a stranger knows of it is worthless.
        self.request.session.cycle_key()
        pending = {"user": user.pk, "until": time.time() + _PENDING_SECONDS}
        self.request.session[_PENDING] = pending | {"next": self.get_success_url()}
        return redirect("sign-in-code")

    def form_invalid(self, form: Any) -> HttpResponse:
        page = super().form_invalid(form)
        if form.has_error("__all__", "sign_in_locked"):
            page.status_code = STATUSES["sign_in_locked"]
        return page

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        return _with_admin_frame(super().render_to_response(context, **kwargs))


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class CodeView(View):
    """The second step of a log-in: a code of the authenticator app, or a recovery code."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        pending = request.session.get(_PENDING, {})
        user = User.objects.filter(pk=pending.get("user"), is_active=True).first()
        if user is None or pending["until"] < time.time():
            request.session.pop(_PENDING, None)
            return redirect("admin:login")
        return super().dispatch(request, user, pending["next"])

    def get(self, request: HttpRequest, user: User, next_url: str) -> HttpResponse:
        return self._page(request)

    def post(self, request: HttpRequest, user: User, next_url: str) -> HttpResponse:
        name = user.get_username()
        try:
            attempt = Attempt(name, "", is_code=True)
        except LockedOutError as error:
            note_try(request, name, is_noted=error.is_noted)
            return self._page(request, str(error), status=status_of(error))
        note_try(request, name)
        if not sign_in.take_code(user, request.POST.get("code", "")):
            return self._page(request, "This code is wrong or was used already.")
        attempt.succeed()
        del request.session[_PENDING]
        auth.login(request, user, backend=_BACKEND)
        if not url_has_allowed_host_and_scheme(next_url, {request.get_host()}):
            next_url = reverse("admin:index")
        return redirect(next_url)

    def _page(self, request: HttpRequest, error: str = "", status: int = 200) -> HttpResponse:
        context = {**admin.site.each_context(request), "title": "Log in", "error": error}
        page = render(request, "ttsweb/sign_in_code.html", context, status=status)
        return _with_admin_frame(page)


@method_decorator([never_cache, login_required, sensitive_post_parameters("code")], name="dispatch")
class AccountView(View):
    """One's own account: the second factor, and what one is told of by e-mail."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request)

    def post(self, request: HttpRequest) -> HttpResponse:
        acts = {
            "begin": self._begin, "confirm": self._confirm, "recovery": self._renew,
            "off": self._switch_off, "notices": self._choose_notices,
        }  # fmt: skip
        act = acts.get(request.POST.get("act", ""))
        return redirect("account") if act is None else act(request)

    def _begin(self, request: HttpRequest) -> HttpResponse:
        if not _user(request).has_usable_password():
            return redirect("account")
        sign_in.begin_second_factor(_user(request))
        return self._page(request)

    def _confirm(self, request: HttpRequest) -> HttpResponse:
        row = SecondFactor.objects.filter(user_id=_user(request).pk).first()
        if row is not None and row.confirmed_at is None:
            codes = sign_in.confirm_second_factor(row, request.POST.get("code", ""))
            if codes:
                return self._page(request, codes=codes)
            return self._page(request, error="This code is not right; is the device's clock?")
        return redirect("account")

    def _renew(self, request: HttpRequest) -> HttpResponse:
        if refusal := self._refuse_code(request):
            return refusal
        row = SecondFactor.objects.get(user_id=_user(request).pk)
        return self._page(request, codes=sign_in.make_recovery_codes(row))

    def _switch_off(self, request: HttpRequest) -> HttpResponse:
        if refusal := self._refuse_code(request):
            return refusal
        sign_in.reset_second_factor(request.user)
        messages.success(request, "The authenticator is switched off.")
        return redirect("account")

    def _refuse_code(self, request: HttpRequest) -> HttpResponse | None:
        """Return the page with an error unless the request brings a right code."""
        try:
            attempt = Attempt(request.user.get_username(), "", is_code=True)
        except LockedOutError as error:
            return self._page(request, error=str(error), status=status_of(error))
        if not sign_in.take_code(request.user, request.POST.get("code", "")):
            return self._page(request, error="This code is wrong or was used already.")
        attempt.succeed()
        return None

    def _choose_notices(self, request: HttpRequest) -> HttpResponse:
        about = [one for one in request.POST.getlist("about") if one in NoticeWish.About]
        values = {"about": about, "failures_only": "failures_only" in request.POST}
        NoticeWish.objects.update_or_create(user_id=_user(request).pk, defaults=values)
        messages.success(request, "Saved.")
        return redirect("account")

    def _page(
        self, request: HttpRequest, *, error: str = "", codes: Any = (), status: int = 200
    ) -> HttpResponse:
        user = _user(request)
        row = SecondFactor.objects.select_related("user").filter(user_id=user.pk).first()
        wish = NoticeWish.objects.filter(user_id=user.pk).first() or NoticeWish()
        context = {
            **admin.site.each_context(request),
            "title": "Account",
            "error": error,
            "recovery_codes": codes,
            "factor": row,
            "is_local": user.has_usable_password(),
            "can_mail": settings.SMTP is not None,
            "wish": wish,
            "topics": NoticeWish.About.choices,
        }
        if row is not None and row.confirmed_at is None:
            address = sign_in.address_of(row, site=request.get_host())
            context |= {"secret": row.secret, "picture": _picture(address)}
        return _with_admin_frame(render(request, "ttsweb/account.html", context, status=status))


def _user(request: HttpRequest) -> Any:
    return request.user  # logged in


def _picture(text: str) -> str:
    """Return a QR code as SVG; it is dark on light in a dark page as well, as cameras need it."""
    return segno.make(text, error="m").svg_inline(scale=5, border=4, light="#fff", dark="#000")


def _with_admin_frame(page: HttpResponse) -> HttpResponse:
    page[CONTENT_POLICY_HEADER] = (
        ADMIN_CONTENT_POLICY  # it has the admin's frame, and so its scripts
    )
    return page
