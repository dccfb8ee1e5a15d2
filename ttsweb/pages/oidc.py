"""Sign people in by an OpenID provider; of an optional extra, so nothing else imports this."""

from __future__ import annotations

import functools
import logging
import secrets
import time
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import (
    OIDCAuthenticationCallbackView,
    OIDCAuthenticationRequestView,
)

from synth.accounts.sign_in import UNKNOWN_NAME, IdentityRefusedError, user_of_claims
from ttsweb.configuration.builders import Provider
from ttsweb.pages.middleware import note_try

logger = logging.getLogger(__name__)

ASK_SECONDS = 10
DISCOVERED_FOR_SECONDS = 3600
CLOCKS_DIFFER_SECONDS = 60
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
CLAIMS = ("iss", "aud", "exp", "iat", "sub")
_CALLBACK = "sign-in-oidc-callback"


class ProviderError(Exception):
    """The provider does not answer, or not as OpenID Connect has it."""


# What the library and the provider may raise while somebody is signed in.
_FAILURES = (
    ProviderError, requests.RequestException, jwt.PyJWTError, SuspiciousOperation,
    KeyError, TypeError, ValueError,
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _discover(provider: Provider, _hour: int) -> dict[str, Any]:
    """Ask the provider for its addresses, when somebody first wants to sign in."""
    address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
    answer = requests.get(address, timeout=ASK_SECONDS)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    if str(found["issuer"]).rstrip("/") != provider.issuer.rstrip("/"):
        raise ProviderError("the provider calls itself by another issuer")
    scheme = urlsplit(provider.issuer).scheme
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if urlsplit(found[name]).scheme not in ("https", scheme):
            raise ProviderError(f"{name} is not an address of https")
    return found


def _provider() -> Provider:
    assert settings.OIDC is not None  # or no address would lead here
    found: Provider = settings.OIDC
    return found


def _discovered() -> dict[str, Any]:
    return _discover(_provider(), int(time.time() // DISCOVERED_FOR_SECONDS))


def _read_setting(name: str, *default: Any) -> Any:
    """Return what the library asks its settings for: ours, and what the provider says of itself."""
    own: dict[str, Any] = {
        "OIDC_RP_CLIENT_ID": _provider().client_id,
        "OIDC_RP_CLIENT_SECRET": _provider().client_secret,
        "OIDC_RP_SCOPES": "openid email",
        "OIDC_USE_PKCE": True,
        "OIDC_TIMEOUT": ASK_SECONDS,
        "OIDC_AUTHENTICATION_CALLBACK_URL": _CALLBACK,
        "LOGIN_REDIRECT_URL": settings.LOGIN_REDIRECT_URL,
    }
    if name in own:
        return own[name]
    said = {
        "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
        "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
        "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
        "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
    }
    if name in said:
        return _discovered()[said[name]]
    if name == "OIDC_TOKEN_USE_BASIC_AUTH":  # unless it says otherwise, as the standard has it
        return "client_secret_post" not in _discovered().get(
            "token_endpoint_auth_methods_supported", ()
        )
    return default[0] if default else None


class ProviderBackend(OIDCAuthenticationBackend):
    """Check what the provider says of somebody, and find the user.

    The library checks neither issuer nor audience of a token, and would take any address of an
    e-mail for the user's own; both are done here.
    """

    get_settings = staticmethod(_read_setting)
    get_user = ModelBackend.get_user  # which lets nobody in whose account was switched off

    def __init__(self) -> None:
        """Ask nobody: a backend is made for each request of a session."""

    OIDC_RP_CLIENT_ID = property(lambda self: _provider().client_id)
    OIDC_RP_CLIENT_SECRET = property(lambda self: _provider().client_secret)
    OIDC_OP_TOKEN_ENDPOINT = property(lambda self: _discovered()["token_endpoint"])
    OIDC_OP_USER_ENDPOINT = property(lambda self: _discovered()["userinfo_endpoint"])
    OIDC_OP_JWKS_ENDPOINT = property(lambda self: _discovered()["jwks_uri"])

    def authenticate(self, request: Any, **kwargs: Any) -> Any:
        """Return the user of a callback; of a log-in by password nothing, whatever its address."""
        return super().authenticate(request, **kwargs) if "nonce" in kwargs else None

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """Return the claims of an ID token: signed by the provider, for us, now, for this log-in.

        Raises:
            jwt.PyJWTError, SuspiciousOperation, KeyError: it is not.
        """
        algorithm = jwt.get_unverified_header(token)["alg"]
        if algorithm not in ALGORITHMS:
            raise SuspiciousOperation("the token is signed by another algorithm")
        claims: dict[str, Any] = jwt.decode(
            token,
            self.retrieve_matching_jwk(token),
            algorithms=[algorithm],
            audience=_provider().client_id,
            issuer=_discovered()["issuer"],
            leeway=CLOCKS_DIFFER_SECONDS,
            options={"require": list(CLAIMS)},
        )
        nonce = kwargs.get("nonce") or ""
        if not nonce or not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise SuspiciousOperation("the token is of another log-in")
        others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims.get("azp", _provider().client_id) != _provider().client_id or (
            len(others) > 1 and "azp" not in claims
        ):
            raise SuspiciousOperation("the token is for another client")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: Any) -> Any:
        """Return the user of checked claims; what a token leaves out is asked for.

        Raises:
            IdentityRefusedError: of `user_of_claims`.
        """
        claims = payload
        if "email" not in claims and "userinfo_endpoint" in _discovered():
            told = self.get_userinfo(access_token, id_token, payload)
            if told["sub"] != payload["sub"]:
                raise SuspiciousOperation("the provider tells of another user")
            claims = {**told, **payload}
        return user_of_claims(payload["iss"], claims)


class StartView(OIDCAuthenticationRequestView):
    """Send somebody to the provider."""

    get_settings = staticmethod(_read_setting)

    def __init__(self, **kwargs: Any) -> None:
        """Ask nobody yet: that is done where its failure can be told."""

    OIDC_OP_AUTH_ENDPOINT = property(lambda self: _discovered()["authorization_endpoint"])
    OIDC_RP_CLIENT_ID = property(lambda self: _provider().client_id)

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            return super().get(request)  # type: ignore[no-any-return]  # has no types
        except _FAILURES as error:
            return _refuse(request, error)


class CallbackView(OIDCAuthenticationCallbackView):
    """Take who comes back from the provider, or say why not."""

    get_settings = staticmethod(_read_setting)

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            return super().get(request)  # type: ignore[no-any-return]  # has no types
        except (*_FAILURES, IdentityRefusedError) as error:
            if isinstance(error, IdentityRefusedError):  # the provider knows who it is
                note_try(request, UNKNOWN_NAME)
            return _refuse(request, error)

    def login_success(self) -> HttpResponse:
        note_try(self.request, self.user.get_username())
        return super().login_success()  # type: ignore[no-any-return]  # has no types

    def login_failure(self) -> HttpResponse:
        return _refuse(self.request, ProviderError("refused or cancelled"))

    @property
    def success_url(self) -> str:
        if not self.user.is_staff:
            return reverse("account")
        return str(super().success_url)


def _refuse(request: HttpRequest, error: Exception) -> HttpResponse:
    """Lead back to the log-in; the log has what happened, without what the provider sent."""
    sentence = f"Signing in with {_provider().name} did not work; try again."
    if isinstance(error, IdentityRefusedError):
        sentence = str(error)
    code = getattr(error, "code", "") or type(error).__name__
    logger.warning("sign-in by the provider failed: %s", code)
    messages.error(request, sentence)
    return redirect("admin:login")


urlpatterns = [
    path("admin/login/oidc", StartView.as_view(), name="sign-in-oidc"),
    path("admin/login/oidc/callback", CallbackView.as_view(), name=_CALLBACK),
]
