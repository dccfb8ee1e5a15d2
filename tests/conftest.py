"""What all tests share: services that may be missing, and servers that a run starts for itself.

A test marked `redis`, `postgres`, `browser`, `compiler`, `clients`, `node_clients`, `hosts`, `gpu`,
`checkpoint`, `flite` or `evaluation` is skipped with a reason where that is missing; with its name
in `TTS_TEST_REQUIRE` (separated by commas) it fails instead.

A test marked `thorough` takes seconds: it kills, fills a disk, renders a long book, or repeats with
more cases what a quick test shows once. `./tts test` leaves these, and those of Redis, PostgreSQL,
a browser and other services' clients, to `./tts test --all`.
"""

from __future__ import annotations

import gc
import os
import secrets
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery.app import app_or_default
from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase
from pytest_django import Settings
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]

from lab.s3_server import S3Server, s3_server
from lab.servers import RedisServer, why_no_redis
from tests import services
from tests.browser.chrome import browser, chrome  # noqa: F401  # fixtures are found by their names
from ttsweb.configuration.builders import broker_settings, storage_settings
from workers.management.commands.test import LEFT_TO_ALL, SELECTION

PROJECT = Path(__file__).resolve().parent.parent
_LEFT = pytest.StashKey[Counter[str]]()  # marker -> tests that this run leaves to `--all`

# Triton looks at this when it is first imported, and tests of kernels are not the only ones that do
# so. Where there is no NVIDIA driver its interpreter is all that can run them.
if not Path("/proc/driver/nvidia").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a `TTS_TEST_REQUIRE` that would require nothing by a typing error; choose a seed."""
    try:
        services.required_services(os.environ.get("TTS_TEST_REQUIRE", ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    seed = os.environ.setdefault("TTS_TEST_SEED", "0")
    if seed == "random":  # processes of this run inherit the number
        os.environ["TTS_TEST_SEED"] = str(secrets.randbelow(2**32))
    elif not seed.isdecimal():
        raise pytest.UsageError(f"TTS_TEST_SEED={seed!r}: expected a whole number or `random`")


def pytest_report_header() -> str:
    """Name the seed of generated requests, so that a run can be repeated."""
    return f"generated requests: TTS_TEST_SEED={os.environ['TTS_TEST_SEED']}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let Python's collector of cycles pass over what is loaded before the first test.

    Libraries and thousands of tests are a million objects; none goes away, and each full search
    for cycles, also those that our code asks for, would look at all of them again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests that share an id: in several processes only one of them would run.

    Several processes take files in this order: first those with the most long tests.
    """
    ids = Counter(item.nodeid for item in items)
    if twice := sorted(name for name, count in ids.items() if count > 1):
        raise pytest.UsageError(f"several tests have the id {twice[0]}")
    if hasattr(config, "workerinput"):
        long = Counter(
            item.path for item in items if any(map(item.get_closest_marker, LEFT_TO_ALL))
        )
        all_of = Counter(item.path for item in items)
        items.sort(key=lambda item: (-long[item.path], -all_of[item.path], item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test the same random numbers; skip or fail one whose service is missing.

    A test that draws without a generator would else depend on what ran before it in its process.
    """
    if (torch := sys.modules.get("torch")) is not None:  # most tests need none
        torch.manual_seed(0)
    required = services.required_services(os.environ.get("TTS_TEST_REQUIRE", ""))
    for name in services.CHECKS:
        if item.get_closest_marker(name) is None:
            continue
        reason = services.why_missing(name)
        if reason is None:
            continue
        if name in required:
            pytest.fail(f"{name} is required (TTS_TEST_REQUIRE), but {reason}", pytrace=False)
        pytest.skip(f"{name}: {reason}")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what the run leaves to `./tts test --all`, by the first marker that says so."""
    config = items[0].config
    if config.option.markexpr == SELECTION[1]:
        marks = (filter(item.get_closest_marker, LEFT_TO_ALL) for item in items)
        config.stash[_LEFT] = Counter(next(names, "") for names in marks)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand this process's count to the one that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        left: Counter[str] = session.config.stash.get(_LEFT, Counter())
        session.config.workeroutput["left"] = dict(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the count of a process; all of them collect the same tests."""
    if left := getattr(node, "workeroutput", {}).get("left"):
        node.config.stash[_LEFT] = Counter(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was left out and why, one line for each reason."""
    left = terminalreporter.config.stash.get(_LEFT, Counter())
    if left:
        parts = ", ".join(f"{count} {name}" for name, count in left.items())
        terminalreporter.section("left to ./tts test --all")
        terminalreporter.line(f"{left.total()} tests: {parts}")
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in reports
        if isinstance(report.longrepr, tuple)
    )
    if not reasons:
        return
    terminalreporter.section("left out")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} x {reason}")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Test on an SQLite file, as the embedded default runs, not in memory.

    Connections of threads to one memory fail at once with "table is locked" where those to a file
    wait for each other, so memory would test locking that no user has. The disk is not waited for:
    this file need not outlive a power cut.
    """
    database = connections["default"]
    if database.vendor == "sqlite":
        path = tmp_path_factory.mktemp("database") / "test.sqlite3"
        database.settings_dict["TEST"]["NAME"] = str(path)
        options = database.settings_dict["OPTIONS"]
        pragmas = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")
        database.settings_dict["OPTIONS"] = options | {"init_command": pragmas}


@pytest.fixture(scope="session", autouse=True)
def cheap_django() -> Iterator[None]:
    """Do once for a process what Django does again for each client and each emptied database.

    Static files are listed once. Content types and permissions, which no test changes, stay where
    the other tables are emptied after a test with transactions of its own.
    """
    listed: dict[str, dict[str, Any]] = {}
    list_files = WhiteNoiseMiddleware.add_files_from_finders
    empty = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

    def list_files_once(self: Any) -> None:
        if self.static_prefix not in listed:
            list_files(self)
            listed[self.static_prefix] = dict(self.files)
        self.files.update(listed[self.static_prefix])

    def empty_what_tests_fill(self: Any) -> None:
        database = connections["default"]
        if database.vendor != "sqlite":
            empty(self)
            return
        names = database.introspection.django_table_names(only_existing=True, include_views=False)
        names = sorted(set(names) - {"auth_permission", "django_content_type"})
        database.ops.execute_sql_flush(database.ops.sql_flush(no_style(), names))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", list_files_once)
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_what_tests_fill)
        yield


@pytest.fixture(autouse=True)
def no_pace_of_other_tests() -> None:
    """Forget what the tests before have rendered; a process keeps that for a second."""
    eta = sys.modules.get("synth.jobs.eta")
    if eta is not None:
        eta.forget_pace()


@pytest.fixture
def clean_env(tmp_path: Path) -> dict[str, str]:
    """An environment for a process of its own: its own data folder, no setting from outside."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {
        "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
        "PYTHONPATH": str(PROJECT),
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",  # a crash says where it was
        "TTS_DATA_DIR": str(tmp_path / "data"),
        "TTS_ENV_FILE": os.devnull,
    }


@pytest.fixture
def storage_folder(tmp_path: Path, settings: Settings) -> Path:
    """The folder of a storage of this test alone, which its first object makes."""
    own = settings.STORAGES["default"] | {"OPTIONS": {"location": tmp_path / "storage"}}
    settings.STORAGES = settings.STORAGES | {"default": own}
    return tmp_path / "storage"


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server of this test run."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a bucket that is the storage of this test alone."""
    name = s3.make_bucket(f"test-{uuid.uuid4().hex}")
    use_storage(settings, monkeypatch, s3, s3.storage_url(name, "a/prefix"))
    return name


def use_storage(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, server: S3Server, address: str
) -> None:
    """Let this process use the storage that a value of TTS_STORAGE names."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    settings.STORAGE_DIR, storage = storage_settings(address, data_dir=settings.DATA_DIR)
    settings.STORAGES = settings.STORAGES | {"default": storage}


@pytest.fixture
def stored_objects(storage_folder: Path) -> Callable[[], list[str]]:
    """A function that lists the names of all objects in the storage."""

    def read() -> list[str]:
        files = storage_folder.rglob("*") if storage_folder.exists() else []
        return sorted(str(p.relative_to(storage_folder)) for p in files if p.is_file())

    return read


@pytest.fixture
def use_broker(tmp_path: Path, settings: Settings) -> Iterator[Callable[[str | None], Path]]:
    """What makes Redis or, without an address, files of this test alone the broker of Celery.

    It returns the folder of the messages.
    """
    from ttsweb.work import make_app  # which looks at Django's settings

    app = app_or_default()
    made = []

    def use(redis_url: str | None = None) -> Path:
        settings.CELERY = broker_settings(redis_url, data_dir=tmp_path)
        made.append(make_app())
        made[-1].set_default()
        made[-1].set_current()
        return tmp_path / "queue" / "messages"

    yield use
    for own_app in made:
        own_app.close()
    app.set_default()
    app.set_current()


@pytest.fixture
def message_folder(use_broker: Callable[[], Path]) -> Path:
    """The folder of a real file broker that belongs to this test alone."""
    return use_broker()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis of this test run, on a free port; ask for `redis_url` instead."""
    if (why := why_no_redis()) is not None:
        pytest.fail(f"{why}; mark the test with `redis`, so that it is skipped")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        server.start()
        yield server.url
    finally:
        server.kill()


@pytest.fixture
def redis_url(redis_server: str) -> str:
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
    return redis_server


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The address of an empty PostgreSQL database, which is dropped after the test."""
    with services.postgres_database() as url:
        yield url


@pytest.fixture
def migrated_postgres_url(postgres_template: str) -> Iterator[str]:
    """The address of a PostgreSQL database with all tables, which is dropped after the test."""
    with services.postgres_database(postgres_template) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the database that `migrated_postgres_url` copies."""
    with services.postgres_database() as url:
        changed = {
            "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
            "TTS_DATABASE_URL": url,
            "TTS_DATA_DIR": str(tmp_path_factory.mktemp("migrated")),
            "TTS_ENV_FILE": os.devnull,
            "TTS_SECRET_KEY": secrets.token_urlsafe(50),
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(command, cwd=PROJECT, env=os.environ | changed, check=True)
        yield url
