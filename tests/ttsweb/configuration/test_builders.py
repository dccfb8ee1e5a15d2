"""What settings become: the secret key, the database, the broker, the log; tables of documents."""

from __future__ import annotations

import logging
import re
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from synth.jobs.options import OPTIONS
from ttsweb.commands.base import CommandError
from ttsweb.configuration import builders
from ttsweb.configuration.builders import (
    broker_settings,
    database_settings,
    read_or_make_secret_key,
    storage_settings,
    trusted_origins,
)
from ttsweb.configuration.env import PROJECT_DIR, SETTINGS, SettingError, SettingSpec, read_dotenv
from ttsweb.log_format import LineFormatter, log_context
from workers.management.commands import docs
from workers.management.commands.docs import (
    MissingBlockError,
    env_example,
    options_table,
    put_table,
    settings_table,
    stale_files,
)

PROJECT = Path(__file__).parents[3]


def test_the_embedded_key_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret_key"
    first = read_or_make_secret_key(None, path=path, is_embedded=True)
    assert len(first) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_secret_key(None, path=path, is_embedded=True) == first
    assert [entry.name for entry in path.parent.iterdir()] == ["secret_key"]


def test_a_given_key_wins_and_neither_none_nor_a_damaged_one_is_used(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(SettingError, match="TTS_SECRET_KEY is not set"):
        read_or_make_secret_key(None, path=path, is_embedded=False)
    assert read_or_make_secret_key("given", path=path, is_embedded=True) == "given"
    assert not path.exists()
    path.write_text("short")
    with pytest.raises(SettingError, match="too short"):
        read_or_make_secret_key(None, path=path, is_embedded=True)


def test_sqlite_writers_take_the_lock_at_once_and_sync_fully(tmp_path: Path) -> None:
    options = database_settings(None, data_dir=tmp_path)["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert "synchronous=FULL" in options["init_command"]


@pytest.mark.parametrize("url", [None, "sqlite:///{}/of/it/own.sqlite3"])
def test_the_folder_of_sqlite_is_made_for_its_user_alone_or_the_error_names_the_remedy(
    url: str | None, tmp_path: Path
) -> None:
    url = url and url.format(tmp_path)
    parsed = database_settings(url, data_dir=tmp_path / "new" / "data")
    folder = Path(parsed["NAME"]).parent
    with sqlite3.connect(parsed["NAME"]) as base:
        base.execute("CREATE TABLE t (a)")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="set TTS_DATA_DIR to a folder that can be written"):
        database_settings(None, data_dir=tmp_path / "file")


def test_a_postgresql_address_is_taken_apart(tmp_path: Path) -> None:
    parsed = database_settings("postgresql://ann:s%40crt@db:5433/tts", data_dir=tmp_path)
    names = ("ENGINE", "USER", "PASSWORD", "HOST", "PORT", "NAME")
    parts = ["django.db.backends.postgresql", "ann", "s@crt", "db", 5433, "tts"]
    assert [parsed[name] for name in names] == parts


def test_the_broker_is_files_unless_redis_is_named(tmp_path: Path) -> None:
    files = broker_settings(None, data_dir=tmp_path)
    redis = broker_settings("redis://localhost/1", data_dir=tmp_path)
    assert files["broker_url"] == "filesystem://localhost"
    assert files["broker_transport_options"]["data_folder_in"].startswith(str(tmp_path))
    assert redis["broker_url"] == "redis://localhost/1"
    assert redis["broker_transport_options"]["global_keyprefix"] == "tts:"


def test_services_need_a_key_and_a_database_url_of_another_project_is_never_used(
    tmp_path: Path,
) -> None:
    refused = start({"TTS_REDIS_URL": "redis://h/0"}, tmp_path, "manage.py", "check")
    assert refused.returncode == 1
    assert refused.stderr.startswith("settings: TTS_SECRET_KEY is not set. With TTS_DATABASE_URL")
    code = "from django.conf import settings; print(settings.DATABASES['default']['ENGINE'])"
    strangers = {"DATABASE_URL": "postgresql://x/y", "REDIS_URL": "redis://x/0"}
    result = start(strangers, tmp_path, "-c", code)
    assert result.stdout.strip() == "ttsweb.sqlite", result.stderr


def test_a_log_line_carries_the_ids_at_work() -> None:
    record = logging.LogRecord("workers", logging.INFO, "f.py", 1, "rendered %d", (3,), None)
    token = log_context.set("job=7 segment=2")
    try:
        text, line = LineFormatter("text").format(record), LineFormatter("json").format(record)
    finally:
        log_context.reset(token)
    assert text.endswith("INFO workers [job=7 segment=2]: rendered 3")
    assert '"context": "job=7 segment=2"' in line
    assert "[" not in LineFormatter("text").format(record).split("workers")[1]


def start(
    variables: dict[str, str], data_dir: Path, *command: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "DJANGO_SETTINGS_MODULE": "ttsweb.settings"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environment | {"TTS_DATA_DIR": str(data_dir)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pages_of_the_site_itself_are_trusted_behind_a_proxy() -> None:
    found = trusted_origins(["tts.example.org", ".example.net", "*"])
    assert found == ["https://tts.example.org", "https://example.net", "https://*.example.net"]


FILES = ["docs/configuration.md", "docs/api.md", ".env.example"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/api.md").write_text("<!-- options -->\n<!-- /options -->\n")
    guide = "# Name\n<!-- settings -->\nold\n<!-- /settings -->\nend\n"
    (tmp_path / "docs/configuration.md").write_text(guide)
    return tmp_path


def test_tables_have_one_row_for_each_setting_and_for_each_option_with_its_limits() -> None:
    rows = settings_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(SETTINGS)
    rows = options_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(OPTIONS)
    assert any("number greater than 0 and less than 2" in row for row in rows)


def test_cell_with_a_bar_does_not_end_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "TTS_X", SettingSpec("TTS_X", "text", "", "", "a | b"))
    assert settings_table().splitlines()[-1] == r"| `TTS_X` | not set | text | a \| b |"


def test_env_example_sets_nothing_as_it_is_and_all_without_its_marks(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(env_example())
    assert read_dotenv(path) == {}
    path.write_text(re.sub("^#(?=TTS_)", "", env_example(), flags=re.MULTILINE))
    expected = {name: spec.example for name, spec in SETTINGS.items() if not spec.before_start}
    assert read_dotenv(path) == expected


def test_writing_mends_what_checking_found(project: Path) -> None:
    assert stale_files(project, write=False) == FILES
    assert not (project / ".env.example").exists()
    assert stale_files(project, write=True) == FILES
    assert stale_files(project, write=False) == []
    guide = (project / "docs/configuration.md").read_text()
    assert guide.startswith("# Name\n<!-- settings -->\n| Setting |")
    assert guide.endswith("|\n<!-- /settings -->\nend\n")


@pytest.mark.parametrize(
    "text",
    [
        "nothing", "<!-- settings -->", "<!-- /settings --> <!-- settings -->",
        "<!-- settings --> <!-- settings --> <!-- /settings -->",
    ],
)  # fmt: skip
def test_document_without_one_place_for_the_table_is_refused(text: str) -> None:
    with pytest.raises(MissingBlockError, match="expected one line"):
        put_table(text, "docs/configuration.md")


def test_check_command_fails_until_the_files_are_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "PROJECT_DIR", project)
    with pytest.raises(CommandError, match=r"docs/configuration\.md and docs/api\.md and"):
        call_command("docs", "--check")
    call_command("docs", "--write")
    call_command("docs", "--check")
    assert capsys.readouterr().out == f"written: {', '.join(FILES)}\nup to date\n"
    (project / "docs/configuration.md").unlink()
    with pytest.raises(CommandError, match=r"configuration\.md: .*No such file"):
        call_command("docs", "--check")


def test_marks_are_comments_in_markdown() -> None:
    for document, name in (("docs/configuration.md", "settings"), ("docs/api.md", "options")):
        with pytest.raises(MissingBlockError, match=f"<!-- {name} --> .* <!-- /{name} -->"):
            put_table("", document)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("s3://tts", {}),
        ("s3://tts/", {}),
        ("s3://my.bucket/a/b/", {"bucket": "my.bucket", "prefix": "a/b/"}),
        (
            "s3://tts/a?endpoint=https://s3.internal:9000&region=eu-1&signed_urls=true",
            {"prefix": "a/", "endpoint": "https://s3.internal:9000", "region": "eu-1",
             "signed_urls": True},
        ),
        ("s3://tts?endpoint=http%3A%2F%2F10.1&signed_urls=false", {"endpoint": "http://10.1"}),
    ],
)  # fmt: skip
def test_storage_may_be_a_bucket(tmp_path: Path, value: str, options: dict[str, object]) -> None:
    folder, found = storage_settings(value, data_dir=tmp_path)
    usual = {"bucket": "tts", "prefix": "", "endpoint": None, "region": None, "signed_urls": False}
    assert folder is None
    assert found == {"BACKEND": "ttsweb.s3.S3Storage", "OPTIONS": usual | options}


def test_storage_is_a_folder_unless_a_bucket_is_named(tmp_path: Path) -> None:
    for value, folder in (
        ("", tmp_path / "storage"), ("/srv/x", Path("/srv/x")), ("below", PROJECT_DIR / "below"),
    ):  # fmt: skip
        found, storage = storage_settings(value, data_dir=tmp_path)
        assert (found, storage["OPTIONS"]) == (folder, {"location": folder})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("gs://tts", "expected a folder, or s3://bucket"),
        ("s3://", "'' is not the name of a bucket"),
        ("s3://Tts", "'Tts' is not the name of a bucket"),
        ("s3://tts:9000/a", "'tts:9000' is not the name of a bucket"),
        ("s3://key:s3cr3t@tts", "AWS_ACCESS_KEY_ID"),
        ("s3://tts?secret=s3cr3t", "'secret' is unknown; the address takes endpoint, region"),
        ("s3://tts?region=a&region=b", "once"),
        ("s3://tts?region=", "has a value"),
        ("s3://tts?region", "cannot be read"),
        ("s3://tts?signed_urls=yes", "signed_urls is true or false"),
        ("s3://tts?endpoint=s3.internal:9000", "endpoint is an address such as"),
        ("s3://tts?endpoint=http://a:s3cr3t@b", "endpoint is an address such as"),
        ("s3://tts?endpoint=https://a/bucket", "endpoint is an address such as"),
        ("s3://tts/a//b", "an empty part"),
        ("s3://tts/../b", "an empty part"),
        ("s3://tts/a#b", "%23"),
    ],
)
def test_address_of_a_bucket_that_is_wrong_is_refused_without_its_secrets(
    tmp_path: Path, value: str, sentence: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)) as caught:
        storage_settings(value, data_dir=tmp_path)
    assert "s3cr3t" not in str(caught.value)


def test_bucket_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"\./tts install s3"):
        storage_settings("s3://tts", data_dir=tmp_path)
