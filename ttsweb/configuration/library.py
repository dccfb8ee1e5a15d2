"""Hold the settings of Django and its libraries that no operator changes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ttsweb.configuration.env import PROJECT_DIR


def _link(name: str, _request: object) -> str:
    from django.urls import reverse  # not above: commands read the settings without Django

    return reverse(name)


INSTALLED_APPS = [
    "ttsweb.apps.TtswebConfig",
    "workers",
    "unfold",
    "ttsweb.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "corsheaders",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "voices",
    "synth",
]
if (PROJECT_DIR / "lab" / "management").is_dir():  # measures and trains; in no installed package
    INSTALLED_APPS.append("lab")
MIDDLEWARE = [
    "synth.telemetry.TraceMiddleware",  # not used unless traces are sent
    "corsheaders.middleware.CorsMiddleware",  # first: a preflight carries no key
    "ttsweb.pages.middleware.ContentSecurityPolicyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "ttsweb.pages.middleware.HostCheckMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "ttsweb.pages.middleware.AuditMiddleware",  # around whatever says who asks
    "ttsweb.pages.middleware.ProxyUserMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
# What a page may load: everything from this site alone, and nothing inline. The admin's scripts
# (Alpine) build functions from the texts of attributes and set styles inline, so its pages, and
# only they, are allowed that; without it nobody could log in.
CONTENT_POLICY_HEADER = "Content-Security-Policy"
_DIRECTIVES = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # the style sheets of the admin and of the API page hold small icons
    "media-src": "'self' blob:",  # a recording is played before it is sent
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
_ADMIN_DIRECTIVES = _DIRECTIVES | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
}
CONTENT_POLICY, ADMIN_CONTENT_POLICY = (
    "; ".join(f"{name} {sources}" for name, sources in directives.items())
    for directives in (_DIRECTIVES, _ADMIN_DIRECTIVES)
)
# Pages of other origins may call the API alone, with a key; TTS_CORS_ORIGINS names the origins.
CORS_PATHS = "^/(api/v1|v1|openai|model)(/|$)"
CORS_ALLOW_CREDENTIALS = False
# The star stands for all but `Authorization`; older browsers know it not.
CORS_ALLOW_HEADERS = (
    "authorization", "api-key", "xi-api-key", "accept", "content-type", "idempotency-key",
    "if-none-match", "last-event-id", "range", "*",
)  # fmt: skip
CORS_EXPOSE_HEADERS = (
    "X-TTS-Ignored", "X-TTS-Model", "X-TTS-Voice", "TTS-Job-Id", "TTS-Sample-Rate", "Location",
    "Retry-After", "ETag", "Content-Disposition", "Content-Range", "Accept-Ranges", "*",
)  # fmt: skip
CORS_PREFLIGHT_MAX_AGE = 3600
# Of `check --deploy`: names below ours may be those of other services, which need no HTTPS of us
# (W005, W021); the proxy sends http:// to https://, while probes come by http (W008).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]
HSTS_SECONDS = 31_536_000  # a year, as browsers' lists ask for
ROOT_URLCONF = "ttsweb.urls"
ASGI_APPLICATION = "ttsweb.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PROJECT_DIR / "ttsweb" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # no collectstatic step: a laptop starts with one command
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = "ttsweb.configuration"
USE_TZ = True
TIME_ZONE = "UTC"
FILE_UPLOAD_MAX_MEMORY_SIZE = 2_500_000
FILE_UPLOAD_HANDLERS = [
    "voices.clip_checks.ClipLimitHandler",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "studio"
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "synth.api.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["synth.api.authentication.KeyPermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ttsweb.http.api.BoundedJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "ttsweb.http.api.OneFormatNegotiation",
    "DEFAULT_SCHEMA_CLASS": "ttsweb.http.fields.ProblemAutoSchema",
    "DEFAULT_PAGINATION_CLASS": "ttsweb.http.pagination.CreatedCursorPagination",
    "EXCEPTION_HANDLER": "ttsweb.http.api.problem_response",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "ttsweb",
    "DESCRIPTION": "Render speech with cloned voices. Make a voice from a clip, send a text as a "
    "job, wait for it and fetch its audio. Every request needs an API key, sent as "
    "`Authorization: Bearer tts_…`.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",  # from the installed package, not from another host
    # In the order in which a person learns them, which the page of the API keeps.
    "TAGS": [
        {"name": name, "description": text}
        for name, text in (
            ("voices", "Who speaks: clips, their transcripts and the speaker's consent."),
            ("transcripts", "What a transcriber hears in a clip, to be corrected."),
            ("jobs", "Texts that are rendered, their segments, takes and files."),
            ("preview", "How a text would be cut and spoken, before anything is rendered."),
            ("batches", "Many texts in one request, and one zip of their files."),
            ("lexicons", "How words are pronounced."),
            ("books", "Books: upload, plan, render, listen, files."),
            ("book-batches", "Batches of many books."),
            ("review", "Segments of all jobs and books that a person should listen to."),
            ("webhooks", "Messages to your own server when jobs and voices change."),
            ("keys", "API keys with scopes and limits."),
            ("users", "Who may log in and call the API."),
            ("groups", "Permissions that several users share."),
            ("permissions", "The names of permissions."),
            ("audit", "Who changed what, when and from where."),
            ("stats", "Numbers for monitoring."),
            ("overview", "The numbers of the admin's overview page."),
        )
    ],
    "COMPONENT_SPLIT_REQUEST": True,  # files are bytes in requests and absent from answers
    "ENUM_NAME_OVERRIDES": {
        "VoiceStatus": "voices.models.VoiceVersion.Status",
        "TranscriptStatus": "voices.models.Transcript.Status",
        "JobStatus": "synth.models.RenderJob.Status",
        "SegmentStatus": "synth.models.Segment.Status",
        "LexiconScope": "synth.models.Lexicon.Scope",
        "WebhookStatus": "synth.models.WebhookDelivery.Status",
        "WebhookEvent": "synth.models.WebhookDelivery.Event",
        "BookBatchEntryStateEnum": "synth.transitions.book_batches.STATES",
        "KindEnum": "synth.api.jobs.serializers.KINDS",
        "LexiconEntryKind": "synth.models.LexiconEntry.Kind",
        "FormatEnum": "synth.formats.FORMATS",
        "BookFormatEnum": "synth.formats.BOOK_FORMATS",
        "BookFileKind": "synth.models.books.file_kinds",
        "BookFileStatus": "synth.models.BookFile.Status",
        "BookBatchSample": "synth.models.Batch.Sample",
    },
}


def _static(name: str, request: object) -> str:
    from django.templatetags.static import static  # settings are read before Django is there

    return static(f"ttsweb/{name}")


_SCRIPTS = ("file_inputs", "copy", "live", "ask", "actions", "waveform", "listen")


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "ttsweb",
    "SITE_HEADER": "ttsweb",
    "SITE_SYMBOL": "graphic_eq",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": partial(_static, "icon.svg")}
    ],
    "SHOW_HISTORY": True,
    "SIDEBAR": {"show_search": True, "navigation": "ttsweb.pages.front.sidebar"},
    "DASHBOARD_CALLBACK": "ttsweb.pages.overview.dashboard",
    "STYLES": [partial(_static, "admin.css")],
    "SCRIPTS": [partial(_static, f"{name}.js") for name in _SCRIPTS],
    "ACCOUNT": {
        "navigation": [
            {"title": "Account", "link": partial(_link, "account")},
            {"title": "Licences", "link": partial(_link, "licences")},
        ]
    },
}
