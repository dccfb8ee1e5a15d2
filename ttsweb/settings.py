"""Read every setting once, typed, from `TTS_` variables; other code takes values as arguments."""

from __future__ import annotations

import os

from ttsweb.configuration.builders import (
    broker_settings,
    database_settings,
    logging_settings,
    model_aliases,
    read_or_make_secret_key,
    transcriber_name,
    voice_aliases,
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
STORAGE_DIR = env_path(
    "TTS_STORAGE_DIR",
    default=DATA_DIR / "storage",
    default_text="`TTS_DATA_DIR`/storage",
    help="Folder of clips, codes and audio; all web processes and workers must use the same one.",
)
DATABASE_URL = env_url(
    "TTS_DATABASE_URL",
    default=None,
    schemes=("postgresql", "postgres", "sqlite"),
    default_text="SQLite in `TTS_DATA_DIR`",
    help="Database, such as postgresql://user:password@host:5432/ttsweb.",
)
REDIS_URL = env_url(
    "TTS_REDIS_URL",
    default=None,
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
        help=(
            "Signs sessions and encrypts secrets in the database; required if a database or "
            "Redis URL is set."
        ),
    ),
    path=DATA_DIR / "secret_key",
    is_embedded=IS_EMBEDDED,
)
SECRET_KEY_FALLBACKS = env_list(
    "TTS_SECRET_KEY_FALLBACKS",
    default=[],
    help=(
        "Former values of TTS_SECRET_KEY. Data that they signed or encrypted can still be "
        "read; `./tts reencrypt` encrypts it with the present key."
    ),
)
DEBUG = env_bool(
    "TTS_DEBUG", default=False, help="Show tracebacks in pages; never use it in production."
)
HOST = env_str("TTS_HOST", default="127.0.0.1", help="Address that `./tts serve` listens on.")
PORT = env_int(
    "TTS_PORT", default=8000, low=1, high=65535, help="Port that `./tts serve` listens on."
)
SERVER_URL = env_url(
    "TTS_URL",
    default=None,
    schemes=("http", "https"),
    default_text="this machine, at `TTS_HOST` and `TTS_PORT`",
    help=(
        "Server that the commands `say`, `render`, `voices` and `jobs` use, such as "
        "https://tts.example.org."
    ),
)
API_KEY = env_secret("TTS_API_KEY", help="API key that these commands send.")
ALLOWED_HOSTS = env_list(
    "TTS_ALLOWED_HOSTS",
    default=["localhost", "127.0.0.1", "[::1]", "host.docker.internal"],
    help=(
        "Host names under which the server answers; needed if `TTS_HOST` is another address "
        "than this machine's own."
    ),
)
CSRF_TRUSTED_ORIGINS = env_list(
    "TTS_CSRF_TRUSTED_ORIGINS",
    default=[],
    help="Origins whose forms are accepted behind a proxy, such as https://tts.example.org.",
)
BEHIND_HTTPS_PROXY = env_bool(
    "TTS_BEHIND_HTTPS_PROXY",
    default=False,
    help="Trust X-Forwarded-Proto and send cookies over HTTPS only.",
)
LOG_LEVEL = env_str(
    "TTS_LOG_LEVEL",
    default="INFO",
    choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    help="Least severe level of log lines that are written.",
)
LOG_FORMAT = env_str(
    "TTS_LOG_FORMAT", default="text", choices=("text", "json"), help="Format of a log line."
)

# --- limits -----------------------------------------------------------------------------------
MAX_CLIP_BYTES = env_int(
    "TTS_MAX_CLIP_BYTES",
    default=25_000_000,
    low=1_000,
    high=200_000_000,
    help="Largest reference clip that can be uploaded, in bytes.",
)
MAX_CLIPS_PER_VOICE = env_int(
    "TTS_MAX_CLIPS_PER_VOICE",
    default=8,
    low=1,
    high=32,
    help="Largest number of clips in one version of a voice.",
)
MIN_REFERENCE_SECONDS = env_float(
    "TTS_MIN_REFERENCE_SECONDS",
    default=1.0,
    low=0.1,
    high=10.0,
    help="Shortest reference clip, in seconds.",
)
MAX_REFERENCE_SECONDS = env_float(
    "TTS_MAX_REFERENCE_SECONDS",
    default=60.0,
    low=3.0,
    high=120.0,
    help="Longest reference clip, in seconds.",
)
CLIP_DECODE_SECONDS = env_float(
    "TTS_CLIP_DECODE_SECONDS",
    default=20.0,
    low=1.0,
    high=300.0,
    help="Seconds after which the decoding of a clip is stopped.",
)
CLIP_DECODE_MEGABYTES = env_int(
    "TTS_CLIP_DECODE_MEGABYTES",
    default=1024,
    low=256,
    high=16384,
    help="Memory that the decoding of one clip may use, in MiB.",
)
MAX_TEXT_CHARS = env_int(
    "TTS_MAX_TEXT_CHARS",
    default=200_000,
    low=1,
    high=5_000_000,
    help="Longest text of one job, in characters.",
)
MAX_BATCH_ITEMS = env_int(
    "TTS_MAX_BATCH_ITEMS",
    default=10_000,
    low=1,
    high=100_000,
    help="Largest number of items in one batch.",
)
MAX_BATCH_CHARS = env_int(
    "TTS_MAX_BATCH_CHARS",
    default=5_000_000,
    low=1,
    high=50_000_000,
    help="Longest text of all items of one batch together, in characters.",
)
MAX_BOOK_BYTES = env_int(
    "TTS_MAX_BOOK_BYTES",
    default=100_000_000,
    low=1_000,
    high=2_000_000_000,
    help="Largest book that can be uploaded, in bytes.",
)
MAX_BOOK_CHARS = env_int(
    "TTS_MAX_BOOK_CHARS",
    default=20_000_000,
    low=1,
    high=100_000_000,
    help="Longest book, in characters.",
)
MAX_BATCH_BOOKS = env_int(
    "TTS_MAX_BATCH_BOOKS",
    default=1_000,
    low=1,
    high=10_000,
    help="Largest number of books in one batch.",
)
BATCH_BOOKS_AT_WORK = env_int(
    "TTS_BATCH_BOOKS_AT_WORK",
    default=16,
    low=1,
    high=1_000,
    help="Books of one batch that are rendered at the same time; the other books wait.",
)
BOOK_IMPORT_SECONDS = env_float(
    "TTS_BOOK_IMPORT_SECONDS",
    default=300.0,
    low=1.0,
    high=3600.0,
    help="Seconds after which the reading of a book is stopped.",
)
BOOK_IMPORT_MEGABYTES = env_int(
    "TTS_BOOK_IMPORT_MEGABYTES",
    default=2048,
    low=256,
    high=65_536,
    help="Memory that the reading of one book may use, in MiB.",
)
MAX_WAIT_SECONDS = env_float(
    "TTS_MAX_WAIT_SECONDS",
    default=30.0,
    low=0.0,
    high=300.0,
    help="Longest `?wait=` in seconds; larger values are reduced to it.",
)
MAX_WAITERS = env_int(
    "TTS_MAX_WAITERS",
    default=200,
    low=0,
    high=10_000,
    help=(
        "Requests with `?wait=` that one web process holds at the same time; further ones are "
        "answered at once."
    ),
)
MAX_EVENT_STREAMS = env_int(
    "TTS_MAX_EVENT_STREAMS",
    default=200,
    low=0,
    high=10_000,
    help="Event streams that one web process keeps open; further ones are refused.",
)
MAX_LIVE_STREAMS = env_int(
    "TTS_MAX_LIVE_STREAMS",
    default=100,
    low=0,
    high=10_000,
    help="Listeners to jobs that are being rendered, in one web process; further ones are refused.",
)
LIVE_START_SECONDS = env_float(
    "TTS_LIVE_START_SECONDS",
    default=50.0,
    low=1.0,
    high=3600.0,
    help=(
        "Seconds that a listener waits for a job's first audio; then the answer says when to "
        "try again."
    ),
)
LIVE_KEEP_SECONDS = env_float(
    "TTS_LIVE_KEEP_SECONDS",
    default=600.0,
    low=5.0,
    high=86400.0,
    help=(
        "Seconds that the audio pieces for listeners are kept after the job has ended and "
        "nobody listens any more."
    ),
)
MIN_FREE_BYTES = env_int(
    "TTS_MIN_FREE_BYTES",
    default=200_000_000,
    low=0,
    high=10**15,
    help="Free bytes that the storage's disk must have; with less, workers start no new work.",
)
KEEP_INLINE_REFERENCES = env_bool(
    "TTS_KEEP_INLINE_REFERENCES",
    default=False,
    help=(
        "Keep the clip that came with a job after the job has ended, until the job is deleted "
        "or expires. The clip's codes are kept in either case."
    ),
)
ORPHAN_HOURS = env_int(
    "TTS_ORPHAN_HOURS",
    default=24,
    low=0,
    high=87600,
    help=(
        "Hours after which objects in the storage that no row names are removed; 0 keeps them. "
        "If two installations share one storage, set it to 0 in both."
    ),
)

# --- URLs that users name -------------------------------------------------------------------------
URL_REFERENCES = env_bool(
    "TTS_URL_REFERENCES",
    default=False,
    help="Allow URLs as a job's reference; the server then downloads the clip.",
)
FETCH_SECONDS = env_float(
    "TTS_FETCH_SECONDS",
    default=10.0,
    low=0.5,
    high=120.0,
    help="Seconds that the download from such a URL may take, redirects included.",
)
ALLOW_PRIVATE_URLS = env_bool(
    "TTS_ALLOW_PRIVATE_URLS",
    default=False,
    help=(
        "Allow URLs of references and webhooks to point to private addresses, such as this "
        "machine and its network. Everyone with a key can then reach services there."
    ),
)
WEBHOOK_HOURS = env_float(
    "TTS_WEBHOOK_HOURS",
    default=24.0,
    low=0.001,
    high=720.0,
    help="Hours for which a failed webhook is sent again, with growing pauses.",
)
RETENTION_DAYS = env_float(
    "TTS_RETENTION_DAYS",
    default=0.0,
    low=0.0,
    high=36_500.0,
    default_text="0 (for ever)",
    help=(
        "Days after which an ended job is deleted with its files, unless the job sets its own "
        "time; 0 keeps jobs. It counts from the end of a job; a change does not affect jobs "
        "that have ended."
    ),
)

# --- lexicons -----------------------------------------------------------------------------------
MAX_LEXICON_ENTRIES = env_int(
    "TTS_MAX_LEXICON_ENTRIES",
    default=5000,
    low=1,
    high=100_000,
    help="Largest number of entries in one lexicon.",
)
LEXICON_SECONDS = env_float(
    "TTS_LEXICON_SECONDS",
    default=2.0,
    low=0.1,
    high=60.0,
    help=(
        "Seconds that applying lexicons may take for one request; after that the request is "
        "refused and the entry is named."
    ),
)

# --- calls as OpenAI's API has them ---------------------------------------------------------------
OPENAI_WAIT_SECONDS = env_float(
    "TTS_OPENAI_WAIT_SECONDS",
    default=300.0,
    low=0.0,
    high=3600.0,
    help=(
        "Seconds that a call of /v1/audio/speech waits for its audio; then the answer is an "
        "error that names the job, which continues."
    ),
)
OPENAI_REPEAT_SECONDS = env_float(
    "TTS_OPENAI_REPEAT_SECONDS",
    default=600.0,
    low=0.0,
    high=86400.0,
    help=(
        "Seconds for which an equal call of the same user gets the audio of the job that succeeded."
    ),
)
OPENAI_MAX_INPUT_CHARS = env_int(
    "TTS_OPENAI_MAX_INPUT_CHARS",
    default=4096,
    low=1,
    high=100_000,
    help="Longest text of one call of /v1/audio/speech, in characters.",
)
OPENAI_ALIASES = model_aliases(
    env_list(
        "TTS_OPENAI_ALIASES",
        default=["tts-1", "tts-1-hd", "gpt-4o-mini-tts"],
        help="Names that calls of /v1 can use for the checkpoint's model; `none`: no other names.",
    )
)
OPENAI_VOICE_ALIASES = voice_aliases(
    env_list(
        "TTS_OPENAI_VOICE_ALIASES",
        default=[],
        help=(
            "Other names of voices in calls of /v1, such as alloy=Ada,nova=Grace; a voice with "
            "this very name takes precedence."
        ),
    )
)
OPENAI_PUBLIC_VOICES = env_bool(
    "TTS_OPENAI_PUBLIC_VOICES",
    default=False,
    help="Answer GET /v1/audio/voices without a key, as some clients send none.",
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
    choices=("auto", "float32", "bfloat16", "int8"),
    help=(
        "Number format of the transformers; `auto` is bfloat16 if the device multiplies it. "
        "`int8` (CPU) is faster and less exact."
    ),
)
CODEC_ENCODE_DTYPE = env_str(
    "TTS_CODEC_ENCODE_DTYPE",
    default="float32",
    choices=("float32", "tf32", "bfloat16"),
    help=(
        "Number format of the codec's encoder, which is part of the codec fingerprint; `tf32` "
        "is float32 with coarser products, only on CUDA."
    ),
)
CODEC_DECODE_DTYPE = env_str(
    "TTS_CODEC_DECODE_DTYPE",
    default="float32",
    choices=("float32", "tf32", "bfloat16"),
    help=(
        "Number format of the codec's decoder; `tf32` is float32 with coarser products, only on "
        "CUDA."
    ),
)
RESAMPLER = env_str(
    "TTS_RESAMPLER",
    default="auto",
    choices=("auto", "torchaudio", "builtin"),
    help="Resampler of clips; `auto` is torchaudio if it can be imported.",
)
ENGINE_SLOTS = env_int(
    "TTS_ENGINE_SLOTS",
    default=0,
    low=0,
    high=512,
    default_text="0 (sized from the device)",
    help=(
        "Segments that are rendered in one batch; 0 takes as many as fit into the device's "
        "memory, at most 16 on a CPU and 64 on a GPU. The engine does not start if the slots do "
        "not fit."
    ),
)
ENGINE_MAX_POSITIONS = env_int(
    "TTS_ENGINE_MAX_POSITIONS",
    default=4096,
    low=64,
    high=32768,
    help="Positions that the prompt and the speech of one segment may use.",
)
ENGINE_STRICT = env_bool(
    "TTS_ENGINE_STRICT",
    default=False,
    help=(
        "Make a segment's codes independent of other segments, bit for bit, on one machine with "
        "one value of TTS_ENGINE_SLOTS; with few segments at a time, rendering is slower."
    ),
)
ENGINE_GRAPHS = env_str(
    "TTS_ENGINE_GRAPHS",
    default="auto",
    choices=("auto", "on", "off"),
    help=(
        "Record the making of a frame as CUDA graphs at the start, one for each number of "
        "segments that are computed together; `auto` is on with CUDA, `on` is refused without "
        "CUDA."
    ),
)
ENGINE_KERNELS = env_str(
    "TTS_ENGINE_KERNELS",
    default="auto",
    choices=("auto", "off"),
    help=(
        "Use the project's own kernels. `auto` uses them if they can be compiled: Triton "
        "kernels on CUDA; on a CPU, frames and audio decoding in C, which needs gcc and AVX2 "
        "and is about twice as fast. `off` uses only PyTorch."
    ),
)
PREFIX_CACHE_BYTES = env_int(
    "TTS_PREFIX_CACHE_BYTES",
    default=1_000_000_000,
    low=0,
    high=10**12,
    help=(
        "Memory on the device for the common beginning of segments of one voice, so that it is "
        "computed once; at most a tenth of what the weights leave free. 600 positions need 88 "
        "MB for the published model in bfloat16. 0 turns this off."
    ),
)
SPIN_ROUNDS = env_int(
    "TTS_SPIN_ROUNDS",
    default=2000,
    low=0,
    high=10**9,
    help=(
        "How often PyTorch's threads look for work before they sleep. 300000 is up to a fifth "
        "faster if nothing else runs, and many times slower beside other work."
    ),
)
TORCH_THREADS = env_int(
    "TTS_TORCH_THREADS",
    default=0,
    low=0,
    high=512,
    default_text="0 (torch decides)",
    help="Processor threads of the engine.",
)
CODES_CACHE_BYTES = env_int(
    "TTS_CODES_CACHE_BYTES",
    default=256_000_000,
    low=0,
    high=10**12,
    help="Memory for voice codes in each worker; 0 turns this off.",
)
CODES_CACHE_CLIPS = env_int(
    "TTS_CODES_CACHE_CLIPS",
    default=1000,
    low=0,
    high=10**6,
    help="Clips whose codes one worker keeps in memory; 0 turns this off.",
)

# --- queue ------------------------------------------------------------------------------------
# More threads than processors do not make more files; they hold up whoever writes to the database.
WORKER_THREADS = env_int(
    "TTS_WORKER_THREADS",
    default=0,
    low=0,
    high=64,
    default_text="0 (as many as processors, from 2 to 4)",
    help="Tasks that one worker runs at once.",
) or min(max(os.cpu_count() or 2, 2), 4)
LEASE_SECONDS = env_float(
    "TTS_LEASE_SECONDS",
    default=60.0,
    low=1.0,
    high=3600.0,
    help="Seconds without a sign of life after which a worker's work is given to another worker.",
)
PUMP_SECONDS = env_float(
    "TTS_PUMP_SECONDS",
    default=1.0,
    low=0.05,
    high=60.0,
    help="Seconds after which a worker looks again for work that no message announced.",
)
SWEEP_SECONDS = env_float(
    "TTS_SWEEP_SECONDS",
    default=15.0,
    low=0.2,
    high=3600.0,
    help=(
        "Seconds after which one of the workers again frees expired leases and repeats lost "
        "messages."
    ),
)
RESEND_SECONDS = env_float(
    "TTS_RESEND_SECONDS",
    default=60.0,
    low=0.5,
    high=86400.0,
    help="Seconds after which a message is sent again if no worker has taken its work.",
)
MAX_ATTEMPTS = env_int(
    "TTS_MAX_ATTEMPTS",
    default=3,
    low=1,
    high=20,
    help=(
        "Attempts of one piece of work before it fails with its last error, or with "
        "`worker_lost`. Where a worker ended, only attempts count in which nothing else was at "
        "work in it."
    ),
)
QUALITY_RETAKES = env_int(
    "TTS_QUALITY_RETAKES",
    default=2,
    low=0,
    high=8,
    help=(
        "Further takes, each with another seed, that follow a take which the quality check "
        "finds suspicious; the best take is kept. A job can set another number."
    ),
)
BOOK_SHORT_RETAKES = env_int(
    "TTS_BOOK_SHORT_RETAKES",
    default=32,
    low=0,
    high=64,
    help=(
        "Total of further takes that follow a take of a book which is too short for its text, "
        "if this is more than `TTS_QUALITY_RETAKES`: such a take keeps a book from succeeding. "
        "A book can set another number."
    ),
)
TRANSCRIBER = transcriber_name(
    env_str(
        "TTS_TRANSCRIBER",
        default="",
        default_text="none",
        help=(
            "Factory of a transcriber that checks each take, as package.module:factory; none is "
            "included."
        ),
    )
)
ASR_MAX_ERROR = env_float(
    "TTS_ASR_MAX_ERROR",
    default=0.35,
    low=0.0,
    high=10.0,
    help=(
        "Errors per word of a text (per letter if words have no blanks between them) above "
        "which the transcriber's check finds a take suspicious."
    ),
)
ASR_SECONDS = env_float(
    "TTS_ASR_SECONDS",
    default=30.0,
    low=0.1,
    high=600.0,
    help="Seconds that the transcriber may take for one take; after that the take is not checked.",
)
DRAIN_SECONDS = env_float(
    "TTS_DRAIN_SECONDS",
    default=20.0,
    low=0.0,
    high=600.0,
    help=(
        "Seconds that a stopping worker may use to finish its work; then other workers take "
        "over the rest."
    ),
)
WORKER_NAME = env_str(
    "TTS_WORKER_NAME",
    default="",
    default_text="the host's name",
    help=(
        "Beginning of the names of this host's workers, followed by the role, and by a "
        "number from the second worker of a role on. It must differ between hosts and stay "
        "the same after restarts."
    ),
)

# --- what follows from the settings above -------------------------------------------------------
DATABASES = {"default": database_settings(DATABASE_URL, data_dir=DATA_DIR)}
STORAGES = {
    "default": {
        "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
        "OPTIONS": {"location": STORAGE_DIR},
    },
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
LOGGING = logging_settings(level=LOG_LEVEL, form=LOG_FORMAT)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_HTTPS_PROXY
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_HTTPS_PROXY else None
CELERY = broker_settings(REDIS_URL, data_dir=DATA_DIR)

UNKNOWN_VARIABLES = unknown_variables()
