"""Read every setting once, typed, from `TTS_` variables; other code takes values as arguments."""

from __future__ import annotations

from ttsweb.configuration.builders import (
    broker_settings,
    cors_origins,
    database_settings,
    logging_settings,
    login_header,
    mail_server,
    openid_provider,
    read_or_make_secret_key,
    storage_settings,
    transcriber_name,
    trusted_origins,
)
from ttsweb.configuration.env import (
    PROJECT_DIR,
    env_bool,
    env_float,
    env_int,
    env_list,
    env_path,
    env_secret,
    env_str,
    env_url,
    load_dotenv,
    unknown_variables,
)
from ttsweb.configuration.library import *  # noqa: F403
from ttsweb.private_files import FILE_MODE, FOLDER_MODE

BASE_DIR = PROJECT_DIR
load_dotenv(BASE_DIR / ".env")

# --- where things are -------------------------------------------------------------------------
DATA_DIR = env_path(
    "TTS_DATA_DIR",
    default=BASE_DIR / "data",
    help="Folder for the embedded database, queue, secret key and rendered files.",
)
STORAGE_DIR, _storage = storage_settings(
    env_str(
        "TTS_STORAGE",
        default="",
        default_text="`TTS_DATA_DIR`/storage",
        help="Where clips, codes and audio are, the same place for all web processes and workers: "
        "a folder, or a bucket as s3://bucket/prefix?endpoint=https://host:port&region=NAME&"
        "signed_urls=true, of which all behind the bucket may be left out. Credentials come from "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or wherever else boto3 finds them.",
    ),
    data_dir=DATA_DIR,
)  # the folder is None where it is a bucket
DATABASE_URL = env_url(
    "TTS_DATABASE_URL",
    schemes=("postgresql", "postgres", "sqlite"),
    default_text="SQLite in `TTS_DATA_DIR`",
    help="Database, such as postgresql://user:password@host:5432/ttsweb.",
)
REDIS_URL = env_url(
    "TTS_REDIS_URL",
    schemes=("redis", "rediss"),
    default_text="files in `TTS_DATA_DIR`/queue",
    help="Redis for messages between processes, such as redis://:password@host:6379/0.",
)
IS_EMBEDDED = DATABASE_URL is None and REDIS_URL is None

# --- web --------------------------------------------------------------------------------------
SECRET_KEY = read_or_make_secret_key(
    env_secret(
        "TTS_SECRET_KEY",
        default_text="generated in `TTS_DATA_DIR`/secret_key when embedded",
        help="Signs sessions and encrypts secrets in the database; required if a database or "
        "Redis URL is set.",
    ),
    path=DATA_DIR / "secret_key",
    is_embedded=IS_EMBEDDED,
)
SECRET_KEY_FALLBACKS = env_list(
    "TTS_SECRET_KEY_FALLBACKS",
    default=[],
    help="Former values of TTS_SECRET_KEY. Data that they signed or encrypted can still be read; "
    "`./tts reencrypt` encrypts it with the present key.",
)
HOST = env_str("TTS_HOST", default="127.0.0.1", help="Address that `./tts serve` listens on.")
PORT = env_int(
    "TTS_PORT", default=8000, low=1, high=65535, help="Port that `./tts serve` listens on."
)
SERVER_URL = env_url(
    "TTS_URL",
    schemes=("http", "https"),
    default_text="this machine, at `TTS_HOST` and `TTS_PORT`",
    help="Server that the commands `say`, `render`, `voices` and `jobs` use, such as "
    "https://tts.example.org.",
)
API_KEY = env_secret("TTS_API_KEY", help="API key that these commands send.")
ALLOWED_HOSTS = env_list(
    "TTS_ALLOWED_HOSTS",
    default=["localhost", "127.0.0.1", "[::1]", "host.docker.internal"],
    help="Host names under which the server answers; needed if `TTS_HOST` is another address than "
    "this machine's own.",
)
BEHIND_HTTPS_PROXY = env_bool(
    "TTS_BEHIND_HTTPS_PROXY",
    default=False,
    help="Trust X-Forwarded-Proto and the last address of X-Forwarded-For, send cookies over HTTPS "
    "only, tell browsers to use nothing but HTTPS for a year, and accept forms of pages at "
    "https:// and a name in `TTS_ALLOWED_HOSTS`.",
)
OIDC = openid_provider(
    env_secret(
        "TTS_OIDC_URL",
        help="OpenID Connect provider that people may sign in with, after `./tts install oidc`, "
        "such as https://client-id:client-secret@issuer.example/realms/x.",
    )
)
LOGIN_HEADER = login_header(
    env_str(
        "TTS_LOGIN_HEADER",
        default="",
        default_text="none",
        help="Header in which a reverse proxy names the user who has signed in there, with the "
        "proxies' addresses, such as X-Remote-User@127.0.0.1,10.0.0.5. It is refused from others.",
    )
)
SMTP = mail_server(
    env_secret(
        "TTS_SMTP_URL",
        help="Server for e-mail notices, which users ask for, such as "
        "smtp://user:password@mail.example.org:587/?from=tts@example.org, or smtps://.",
    )
)
LOG_FORMAT = env_str(
    "TTS_LOG_FORMAT", default="text", choices=("text", "json"), help="Format of a log line."
)

# --- limits -----------------------------------------------------------------------------------
MAX_BOOK_BYTES = env_int(
    "TTS_MAX_BOOK_BYTES",
    default=100_000_000,
    low=1_000,
    high=2_000_000_000,
    help="Largest book that can be uploaded, in bytes.",
)
KEEP_INLINE_REFERENCES = env_bool(
    "TTS_KEEP_INLINE_REFERENCES",
    default=False,
    help="Keep the clip that came with a job after the job has ended, until the job is deleted or "
    "expires. The clip's codes are kept in either case.",
)
ORPHAN_HOURS = env_int(
    "TTS_ORPHAN_HOURS",
    default=24,
    low=0,
    high=87600,
    help="Hours after which objects in the storage that no row names are removed; 0 keeps them. "
    "If two installations share one storage, set it to 0 in both.",
)

# --- URLs that users name -------------------------------------------------------------------------
URL_REFERENCES = env_bool(
    "TTS_URL_REFERENCES",
    default=False,
    help="Allow URLs as a job's reference; the server then downloads the clip.",
)
ALLOW_PRIVATE_URLS = env_bool(
    "TTS_ALLOW_PRIVATE_URLS",
    default=False,
    help="Allow URLs of references and webhooks to point to private addresses, such as this "
    "machine and its network. Everyone with a key can then reach services there.",
)
RETENTION_DAYS = env_float(
    "TTS_RETENTION_DAYS",
    default=0.0,
    low=0.0,
    high=36_500.0,
    default_text="0 (for ever)",
    help="Days after which an ended job is deleted with its files, unless the job sets its own "
    "time; 0 keeps jobs. It counts from the end of a job; a change does not affect jobs that have "
    "ended.",
)

# --- calls as OpenAI's API has them ---------------------------------------------------------------
OPENAI_PUBLIC_VOICES = env_bool(
    "TTS_OPENAI_PUBLIC_VOICES",
    default=False,
    help="Answer GET /v1/models, /v1/audio/models and /v1/audio/voices without a key, as some "
    "clients send none. The voices are then those that every user may speak with.",
)
OPENAI_STRICT = env_bool(
    "TTS_OPENAI_STRICT",
    default=False,
    help="Refuse calls of /v1 that the model cannot do in full: unknown fields, `instructions`, "
    "names of other models, and names such as `alloy` that no voice has. Otherwise they are "
    "answered, and headers say what was ignored.",
)
CORS_ORIGINS = cors_origins(
    env_list(
        "TTS_CORS_ORIGINS",
        default=[],
        help="Origins whose pages may call the API from a browser, such as "
        "https://chat.example.org; `*` allows all. Cookies are never accepted from them, so each "
        "call needs a key.",
    )
)

# --- engine (read by workers) -----------------------------------------------------------------
CHECKPOINT = env_path(
    "TTS_CHECKPOINT",
    default=BASE_DIR / "synth" / "demo",
    help="Folder of the model: config.json, safetensors, tokenizer.json, codec.pth, card.json.",
)
DEVICE = env_str(
    "TTS_DEVICE", default="auto", help="`auto` (CUDA if present, else CPU), `cpu` or `cuda:N`."
)
DTYPE = env_str(
    "TTS_DTYPE",
    default="auto",
    choices=("auto", "float32", "bfloat16", "float16", "int8", "int8-slow", "fp8"),
    help="Number format of the transformers; `auto` is bfloat16 if the device multiplies it, and "
    "`int8` on a GPU too small for it. `int8` takes half the memory and is less exact; on a "
    "CPU it is faster, on a large GPU slower where many streams run. `int8-slow` (GPU) leaves the "
    "smaller transformer, which reads its weights ten times a frame, in 16 bits. `fp8` (GPU of "
    "compute capability 8.9 or more) is for many streams at once and less exact than `int8`. "
    "`float16` is for GPUs without bfloat16.",
)
ENGINE_SLOTS = env_int(
    "TTS_ENGINE_SLOTS",
    default=0,
    low=0,
    high=512,
    default_text="0 (sized from the device)",
    help="Segments that are rendered in one batch; 0 takes as many as fit into the device's "
    "memory, at most 16 on a CPU and 64 on a GPU. The engine does not start if the slots do not "
    "fit.",
)
ENGINE_MAX_POSITIONS = env_int(
    "TTS_ENGINE_MAX_POSITIONS",
    default=0,
    low=0,
    high=32768,
    default_text="0 (4096, on a GPU below 32 GB 2048)",
    help="Positions that the prompt and the speech of one segment may use, 64 or more.",
)
ENGINE_STRICT = env_bool(
    "TTS_ENGINE_STRICT",
    default=False,
    help="Make a segment's codes independent of other segments, bit for bit, on one machine with "
    "one value of TTS_ENGINE_SLOTS; with few segments at a time, rendering is slower.",
)
ENGINE_WITHOUT = env_list(
    "TTS_ENGINE_WITHOUT",
    default=[],
    choices=("graphs", "kernels", "torchaudio"),
    help="What the engine does without, where it makes trouble; each is used if the device has "
    "it. `graphs`: CUDA graphs of the making of a frame. `kernels`: the project's own kernels, in "
    "Triton on CUDA, in C on a CPU, which make frames about twice as fast. `torchaudio`: its "
    "resampler, which gives the same as the built-in one.",
)

# --- queue ------------------------------------------------------------------------------------
LEASE_SECONDS = env_float(
    "TTS_LEASE_SECONDS",
    default=60.0,
    low=1.0,
    high=3600.0,
    help="Seconds without a sign of life after which a worker's work is given to another worker.",
)
TRANSCRIBER = transcriber_name(
    env_str(
        "TTS_TRANSCRIBER",
        default="",
        default_text="none",
        help="Transcriber that proposes the transcripts of clips and checks each take: "
        "`pocketsphinx` (English, after `./tts install asr`), or a factory as "
        "package.module:factory. Web processes and workers need the same value.",
    )
)
IDLE_UNLOAD_SECONDS = env_float(
    "TTS_IDLE_UNLOAD_SECONDS",
    default=0.0,
    low=0.0,
    high=604_800.0,
    default_text="0 (never)",
    help="Seconds without work after which a worker takes the model from its device; the worker "
    "stays, and loads the model for the next work.",
)
WORKER_NAME = env_str(
    "TTS_WORKER_NAME",
    default="",
    default_text="the host's name",
    help="Beginning of the names of this host's workers, followed by the role, and by a number "
    "from the second worker of a role on. It must differ between hosts and stay the same after "
    "restarts.",
)

# --- what no variable changes; a settings module of one's own may, as with Django's settings ------
MAX_CLIP_BYTES = 25_000_000  # of a reference clip: a minute in 24 bits, stereo, takes 17 million
MAX_CLIPS_PER_VOICE = 8  # in one version of a voice; all of them are in each prompt
MAX_TEXT_CHARS = 200_000  # of one job: about four hours of speech; longer texts are books
MAX_BATCH_ITEMS = 10_000  # of one batch, whose request is read as a whole
MAX_BATCH_CHARS = 5_000_000  # of all items of one batch together
MAX_WAIT_SECONDS = 30.0  # of `?wait=`: proxies give up on a silent connection after 60
MAX_LIVE_STREAMS = 100  # listeners of one web process, each of whom holds a second of audio
LIVE_START_SECONDS = 50.0  # that a listener waits for first audio: also less than a proxy's 60
LIVE_KEEP_SECONDS = 600.0  # that audio pieces outlive the job and the last listener, to come back
MAX_ATTEMPTS = 3  # of one piece of work: a fault of the moment does not come three times
MIN_FREE_BYTES = 200_000_000  # on the storage's disk; no worker starts work with less
DRAIN_SECONDS = 20.0  # that a stopping worker may use: with what follows, less than Docker's 40
CODEC_ENCODE_DTYPE = "float32"  # part of the codec's fingerprint: another encodes all voices anew

# --- what follows from the settings above -------------------------------------------------------
# A worker looks by itself for work that no message announced.
PUMP_SECONDS = min(1.0, LEASE_SECONDS / 10)
# One of the workers frees expired leases and repeats lost messages.
SWEEP_SECONDS = min(15.0, LEASE_SECONDS / 4)
# A message is sent again if no worker has taken its work.
RESEND_SECONDS = LEASE_SECONDS
DATABASES = {"default": database_settings(DATABASE_URL, data_dir=DATA_DIR)}
STORAGES = {
    "default": _storage,
    # The plain backend when developing and testing: hashed names need `collectstatic` first.
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_ROOT = DATA_DIR / "static"
FILE_UPLOAD_PERMISSIONS = FILE_MODE
FILE_UPLOAD_DIRECTORY_PERMISSIONS = FOLDER_MODE
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * MAX_TEXT_CHARS + 1_000_000  # a UTF-8 character has up to 4 bytes
DATA_UPLOAD_MAX_NUMBER_FILES = 2 * MAX_CLIPS_PER_VOICE  # a clip may bring its codes
# JSON may spell a character in six bytes; the rest of an item are its options.
MAX_BATCH_BYTES = 6 * MAX_BATCH_CHARS + 1_000 * MAX_BATCH_ITEMS + 1_000_000
MAX_BODY_BYTES = max(
    MAX_CLIPS_PER_VOICE * MAX_CLIP_BYTES + DATA_UPLOAD_MAX_MEMORY_SIZE,
    MAX_BATCH_BYTES,
    MAX_BOOK_BYTES + DATA_UPLOAD_MAX_MEMORY_SIZE,
)
LOGGING = logging_settings(form=LOG_FORMAT)
CSRF_TRUSTED_ORIGINS = trusted_origins(ALLOWED_HOSTS) if BEHIND_HTTPS_PROXY else []
CORS_ALLOWED_ORIGINS = [origin for origin in CORS_ORIGINS if origin != "*"]
CORS_ALLOW_ALL_ORIGINS = "*" in CORS_ORIGINS
# Where nobody is let in, nothing answers a preflight, as if this were not here.
CORS_URLS_REGEX = CORS_PATHS if CORS_ORIGINS else "(?!)"  # noqa: F405  # of the library's settings
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if OIDC is not None:
    AUTHENTICATION_BACKENDS.append("ttsweb.pages.oidc.ProviderBackend")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_HTTPS_PROXY
SECURE_HSTS_SECONDS = HSTS_SECONDS if BEHIND_HTTPS_PROXY else 0  # noqa: F405  # of the library's
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_HTTPS_PROXY else None
CELERY = broker_settings(REDIS_URL, data_dir=DATA_DIR)

UNKNOWN_VARIABLES = unknown_variables()
