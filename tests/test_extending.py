"""The examples of docs/extending.md, carried out in a copy of the project, do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import av
import pytest
import soundfile

from tests.workers.management.test_say import MAKE_VOICE

PROJECT = Path(__file__).resolve().parent.parent
STEP = re.compile(
    r"`([\w/]+\.py)`, (?:above `([^\n]+)`|a new file)\n\n```text\n(.+?)```", re.DOTALL
)
MOST_FILES = 4
RENDER = """
import django; django.setup()
import sys
from pathlib import Path
from django.conf import settings
from synth.jobs.submit import Order, Sender, submit_job
from ttsweb.commands.terminal import Progress
from workers.local.local_worker import LocalWorker
from workers.local.local_worker import find_speaker
from workers.local.local_worker import save_audio, wait_encoded, wait_ended
voice, version = find_speaker("Ada")
worker, progress = LocalWorker(log_path=Path(settings.DATA_DIR, "worker.log")), Progress(sys.stderr)
try:
    worker.wait_ready(progress)
    wait_encoded(version.pk, worker, progress)
    for name, options in {jobs!r}.items():
        job, _ = submit_job(Order(text="I saw the lamp.", voice=voice, **options), Sender(None))
        save_audio(wait_ended(job.pk, worker, progress), Path(name))
finally:
    worker.stop()
"""
COUNT = """
import django; django.setup()
import json, time
from celery import current_app
import workers.process.claiming
from synth.models.accounts import WordCount
from workers.process import pump
from workers.process.claiming import take_work
from workers.process.worker_process import WorkerProcess
rows = [WordCount.objects.create(text=text) for text in ("I saw the lamp.", " ")]
process = WorkerProcess(name="counter", role="cpu")
until = time.monotonic() + 60
while WordCount.objects.filter(status__in=("queued", "claimed")).exists():
    take_work(process)
    assert time.monotonic() < until
    time.sleep(0.05)
found = WordCount.objects.order_by("pk").values("status", "words", "error_code", "claimed_by")
print(json.dumps({
    "rows": list(found),
    "held": len(process.held),
    "figures": pump.figures(process)["word_counts_in_flight"],
    "messages": sorted(name for name in current_app.tasks if "count" in name),
}))
"""
DESCRIBE = """
import django; django.setup()
from drf_spectacular.generators import SchemaGenerator
from synth.admin.job_form import JobForm
from ttsweb.commands.job_arguments import add_job_arguments
import json
from argparse import ArgumentParser
parser = ArgumentParser()
add_job_arguments(parser)
schemas = SchemaGenerator().get_schema(public=True)["components"]["schemas"]
request = schemas["JobCreateRequest"]["properties"]
print(json.dumps({
    "formats": schemas["FormatEnum"]["enum"],
    "request": request.get("lead_ms"),
    "answer": "lead_ms" in schemas["Job"]["properties"],
    "form": "lead_ms" in JobForm.base_fields,
    "form_formats": [name for name, _ in JobForm.base_fields["format"].choices],
    "flags": sorted(parser._option_string_actions),
    "flag_formats": parser._option_string_actions["--format"].choices,
}))
"""


def copy_of_the_project(folder: Path) -> Path:
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("ttsweb", "voices", "synth", "workers", "tests/data"):
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, ignore=skipped)
    for name in ("manage.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, folder / name)
    return folder


def carry_out(heading: str, folder: Path) -> set[str]:
    """Do what a section of the guide says, and return the files that were changed."""
    guide = (PROJECT / "docs" / "extending.md").read_text(encoding="utf-8")
    section = guide.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    steps = STEP.findall(section)
    assert steps, heading
    for name, anchor, code in steps:
        path = folder / name
        if not anchor:
            path.write_text(code, encoding="utf-8")
            continue
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        places = [place for place, line in enumerate(lines) if line.strip() == anchor]
        assert places, f"{name} has no line {anchor!r}"
        for place in reversed(places):
            lines.insert(place, code)
        path.write_text("".join(lines), encoding="utf-8")
    return {name for name, _, _ in steps}


@pytest.fixture
def environment(clean_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return clean_env | {"PYTHONPATH": str(tmp_path / "copy")}


def python(environment: dict[str, str], *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=environment["PYTHONPATH"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.thorough
def test_a_format_and_an_option_are_added_in_a_few_files_and_heard(
    environment: dict[str, str], tmp_path: Path
) -> None:
    copy = copy_of_the_project(tmp_path / "copy")
    changed_for_format = carry_out("A new output format", copy)
    changed_for_option = carry_out("A new job option", copy)
    python(environment, "manage.py", "makemigrations", "synth", "-n", "lead")
    jobs = {
        str(tmp_path / "plain.wav"): {},
        str(tmp_path / "later.wav"): {"lead_ms": 700},
        str(tmp_path / "radio.mp2"): {"format": "mp2", "bit_rate": 96_000},
    }

    python(environment, "-c", MAKE_VOICE)
    python(environment, "-c", RENDER.replace("{jobs!r}", repr(jobs)))
    described = json.loads(python(environment, "-c", DESCRIBE))

    assert changed_for_format == {"synth/formats.py"}
    assert len(changed_for_option) <= MOST_FILES
    plain, rate = soundfile.read(tmp_path / "plain.wav")
    later, _ = soundfile.read(tmp_path / "later.wav")
    lead = round(0.7 * rate)
    assert len(later) == len(plain) + lead
    assert not later[:lead].any()
    assert (later[lead:] == plain).all()
    with av.open(str(tmp_path / "radio.mp2")) as opened:
        assert opened.streams.audio[0].codec_context.name.startswith("mp2")
        assert opened.streams.audio[0].bit_rate == 96_000
    for formats in ("formats", "form_formats", "flag_formats"):
        assert "mp2" in described[formats]
    assert described["request"]["maximum"] == 10_000
    assert described["answer"]
    assert described["form"]
    assert "--lead-ms" in described["flags"]


@pytest.mark.thorough
def test_a_kind_of_work_is_added_in_a_few_files_and_done(
    environment: dict[str, str], tmp_path: Path
) -> None:
    changed = carry_out("A new kind of work", copy_of_the_project(tmp_path / "copy"))
    python(environment, "manage.py", "makemigrations", "synth", "-n", "word_count")
    python(environment, "manage.py", "migrate")
    done = json.loads(python(environment, "-c", COUNT))

    assert len(changed) <= MOST_FILES
    ended = {"claimed_by": "counter"}
    assert done["rows"] == [
        {"status": "done", "words": 4, "error_code": "", **ended},
        {"status": "failed", "words": None, "error_code": "no_words", **ended},
    ]
    assert (done["held"], done["figures"]) == (0, 0)
    assert done["messages"] == ["workers.count_words"]
