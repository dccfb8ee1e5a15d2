"""Wyoming's own client is answered by a served project, and leaves nothing busy behind."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeVoice,
)

from tests.workers.commands import (
    CLIP,
    MAKE_KEY,
    PATIENCE_SECONDS,
    TRANSCRIPT,
    environment_for,
    free_port,
    run_python,
    serving,
)

SENTENCE = "I saw the pale light of the lamp."
WORDS = ("lamp", "wind", "light", "room", "sound", "machine", "house")
ADA = SynthesizeVoice(name="Ada")


def many(who: str) -> str:
    """Return fifty sentences, none of which was rendered for anybody else."""
    return " ".join(f"{who} saw the {one} and the {two}." for one in WORDS for two in WORDS)


@dataclass(frozen=True)
class Home:
    """A served project with a Wyoming port, and the API as its account sees it."""

    host: str
    port: int
    api: httpx.Client

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs, oldest first."""
        found: list[dict[str, Any]] = self.api.get("/jobs", params={"limit": 100}).json()["results"]
        return found[::-1]

    def heard_seconds(self, job: dict[str, Any]) -> float:
        """Return how long a job is for a listener, who hears the first take of each segment.

        Its file has a later one where that was better.
        """
        found = self.api.get(f"/jobs/{job['id']}/segments").json()["results"]
        again = [segment for segment in found if segment["retakes"]]
        more = sum(one["candidates"][0]["seconds"] - one["audio_seconds"] for one in again)
        return float(job["audio_seconds"] + more)

    def wait_idle(self) -> list[dict[str, Any]]:
        """Return the jobs once none of them goes on."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            jobs = self.jobs()
            if all(job["status"] not in ("queued", "running") for job in jobs):
                return jobs
            assert time.monotonic() < deadline, jobs
            time.sleep(0.1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    environment = environment_for(tmp_path_factory.mktemp("home"))
    key = run_python(environment, MAKE_KEY)
    with serving(environment, "--wyoming", str(free_port())) as (_, answer):
        place = urlsplit(answer["wyoming"])
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=f"{answer['url']}/api/v1", headers=headers, timeout=60) as api:
            assert place.hostname and place.port
            for name, language in (("Ada", ""), ("Bert", "de"), ("Put away", "")):
                make_voice(api, name, language)
            [away] = api.get("/voices", params={"name": "Put away"}).json()["results"]
            api.patch(f"/voices/{away['id']}", json={"archived": True}).raise_for_status()
            yield Home(place.hostname, place.port, api)


def make_voice(api: httpx.Client, name: str, language: str) -> None:
    form = {"name": name, "transcript": TRANSCRIPT, "consent_statement": "It is synthetic."}
    files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
    made = api.post("/voices", data={**form, "language": language}, files=files)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while api.get(f"/voices/{made.raise_for_status().json()['id']}").json()["status"] != "ready":
        assert time.monotonic() < deadline
        time.sleep(0.2)


@dataclass
class Heard:
    """What a client was sent for one text: the kinds of events in order, and the audio."""

    kinds: list[str] = field(default_factory=list)
    audio: bytes = b""
    rates: set[int] = field(default_factory=set)
    error: Error | None = None

    def note(self, event: Event) -> None:
        if event.type not in self.kinds[-1:]:
            self.kinds.append(event.type)
        if AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.width, chunk.channels) == (2, 1)
            self.audio += chunk.audio
            self.rates.add(chunk.rate)
        elif AudioStart.is_type(event.type):
            self.rates.add(AudioStart.from_event(event).rate)
        elif Error.is_type(event.type):
            self.error = Error.from_event(event)

    @property
    def seconds(self) -> float:
        return len(self.audio) / 2 / min(self.rates)


WHOLE = ["audio-start", "audio-chunk", "audio-stop"]


async def events(client: AsyncTcpClient) -> AsyncIterator[Event]:
    while (event := await client.read_event()) is not None:
        yield event


async def hear(client: AsyncTcpClient, *, end: str = "audio-stop") -> Heard:
    """Return what comes until an event that ends it, or the end of the connection."""
    heard = Heard()
    async for event in events(client):
        heard.note(event)
        if event.type == end:
            break
    return heard


def with_client(home: Home, use: Callable[[AsyncTcpClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = AsyncTcpClient(home.host, home.port, read_timeout=PATIENCE_SECONDS)
        async with client:
            return await use(client)

    return asyncio.run(run())


def test_info_lists_the_voices_that_can_speak_with_their_languages(home: Home) -> None:
    async def describe(client: AsyncTcpClient) -> Info:
        await client.write_event(Ping(text="here").event())
        pong = await client.read_event()
        assert pong is not None and Pong.from_event(pong).text == "here"
        await client.write_event(Describe().event())
        event = await client.read_event()
        assert event is not None and Info.is_type(event.type)
        return Info.from_event(event)

    [program] = with_client(home, describe).tts

    assert program.supports_synthesize_streaming and program.installed
    shown = [(voice.name, voice.description, voice.languages) for voice in program.voices]
    # The model's language stands in where a voice has none: without any it would not be shown.
    assert shown == [("Ada", "Ada", ["en"]), ("Bert", "Bert", ["de"])]


@pytest.mark.parametrize(
    ("voice", "spoken_by"),
    [(ADA, "Ada"), (None, "Ada"), (SynthesizeVoice(language="de-DE"), "Bert")],
    ids=["named", "any", "by language"],
)
def test_text_is_spoken_and_its_audio_is_that_of_the_job(
    home: Home, voice: SynthesizeVoice | None, spoken_by: str
) -> None:
    async def speak(client: AsyncTcpClient) -> Heard:
        await client.write_event(Synthesize(SENTENCE, voice).event())
        return await hear(client)

    heard = with_client(home, speak)
    job = home.wait_idle()[-1]

    assert (heard.kinds, heard.rates) == (WHOLE, {24_000})
    assert (job["status"], job["voices"][0]["name"]) == ("succeeded", spoken_by)
    assert heard.seconds == pytest.approx(home.heard_seconds(job), abs=0.01)


def test_first_audio_comes_while_the_rest_is_rendered(home: Home) -> None:
    async def speak(client: AsyncTcpClient) -> tuple[str, Heard]:
        await client.write_event(Synthesize(many("He"), ADA).event())
        first = Heard()
        async for event in events(client):
            first.note(event)
            if first.audio:
                break
        status = (await asyncio.to_thread(home.jobs))[-1]["status"]
        return status, await hear(client)

    status, rest = with_client(home, speak)

    assert status == "running"
    assert rest.kinds == WHOLE[1:]
    assert home.wait_idle()[-1]["status"] == "succeeded"


def test_text_in_pieces_is_heard_before_it_is_written(home: Home) -> None:
    written = ["The machine stood in the long", " room. I saw the pale light.", " It was ", "old."]

    async def speak(client: AsyncTcpClient) -> tuple[Heard, Heard]:
        await client.write_event(SynthesizeStart(ADA).event())
        for piece in written[:2]:
            await client.write_event(SynthesizeChunk(piece).event())
        first = Heard()
        async for event in events(client):
            first.note(event)
            if first.audio:
                break
        for piece in written[2:]:
            await client.write_event(SynthesizeChunk(piece).event())
        # For servers that know no streams; it must not be spoken twice.
        await client.write_event(Synthesize("".join(written), ADA).event())
        await client.write_event(SynthesizeStop().event())
        return first, await hear(client, end="synthesize-stopped")

    before = len(home.jobs())
    first, rest = with_client(home, speak)
    jobs = home.wait_idle()[before:]

    assert first.kinds == WHOLE[:2]
    assert rest.kinds == [*WHOLE[1:], "synthesize-stopped"]
    assert " ".join(job["text_start"] for job in jobs) == "".join(written)
    assert {job["status"] for job in jobs} == {"succeeded"}
    seconds = sum(map(home.heard_seconds, jobs)) + 0.3 * (len(jobs) - 1)
    assert first.seconds + rest.seconds == pytest.approx(seconds, abs=0.02)


def test_texts_that_are_sent_ahead_are_spoken_in_their_order(home: Home) -> None:
    async def speak(client: AsyncTcpClient) -> list[Heard]:
        for number in ("One", "Two", "Three"):
            await client.write_event(Synthesize(f"{number} lamps.", ADA).event())
        return [await hear(client) for _ in range(3)]

    before = len(home.jobs())
    heard = with_client(home, speak)
    jobs = home.wait_idle()[before:]

    assert [one.kinds for one in heard] == [WHOLE] * 3
    assert [job["text_start"] for job in jobs] == ["One lamps.", "Two lamps.", "Three lamps."]


@pytest.mark.parametrize("text", ["", " ", "🙂 …"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "in pieces"])
def test_text_without_words_is_a_short_silence(home: Home, text: str, is_stream: bool) -> None:
    async def speak(client: AsyncTcpClient) -> Heard:
        if not is_stream:
            await client.write_event(Synthesize(text, ADA).event())
            return await hear(client)
        await client.write_event(SynthesizeStart(ADA).event())
        await client.write_event(SynthesizeChunk(text).event())
        await client.write_event(SynthesizeStop().event())
        return await hear(client, end="synthesize-stopped")

    before = len(home.jobs())
    heard = with_client(home, speak)

    assert heard.kinds[:3] == WHOLE and not any(heard.audio)
    assert 0 < heard.seconds < 0.5 and len(home.jobs()) == before


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "in pieces"])
def test_client_that_leaves_has_his_jobs_cancelled(home: Home, is_stream: bool) -> None:
    async def leave(client: AsyncTcpClient) -> None:
        if is_stream:
            await client.write_event(SynthesizeStart(ADA).event())
            await client.write_event(SynthesizeChunk(f"{many('They')}\nAnd the rest").event())
        else:
            await client.write_event(Synthesize(many("We"), ADA).event())
        async for event in events(client):
            if AudioChunk.is_type(event.type):
                return

    before = len(home.jobs())
    with_client(home, leave)
    jobs = home.wait_idle()[before:]

    assert [job["status"] for job in jobs] == ["cancelled"]


LONG = "x" * 200_001


def framed(line: bytes, rest: bytes = b"") -> bytes:
    return line + b"\n" + rest


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([Synthesize("Hello.", SynthesizeVoice(name="Nobody")).event()], "voice_not_found"),
        ([Synthesize("Hello.", SynthesizeVoice(language="fr")).event()], "voice_not_found"),
        ([Synthesize("<speak/>", ADA, text_format="ssml").event()], "text_format_not_supported"),
        ([Synthesize(LONG, ADA).event()], "text_too_long"),
        ([Synthesize("Hel\0lo.", ADA).event()], "text_not_text"),
        ([SynthesizeStart(ADA).event(), SynthesizeStart(ADA).event()], "event_invalid"),
        ([Synthesize(many("You"), ADA).event()] * 12, "too_many_texts"),
        ([Event("synthesize", {"voice": {"name": "Ada"}})], "event_invalid"),
        ([Event("synthesize", {"text": 5})], "event_invalid"),
        ([framed(b"no JSON")], "event_invalid"),
        ([framed(b'["a", "list"]')], "event_invalid"),
        ([framed(b'{"data": {}}')], "event_invalid"),
        ([framed(b'{"type": "x", "data_length": "1"}')], "event_invalid"),
        ([framed(b'{"type": "x", "payload_length": 100000000000}')], "event_invalid"),
        ([framed(b'{"type": "' + b"x" * 100_000 + b'"}')], "event_invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_error_is_told_and_the_connection_closed(
    home: Home, sent: list[Event | bytes], code: str
) -> None:
    async def speak(client: AsyncTcpClient) -> Heard:
        for one in sent:
            if isinstance(one, Event):
                await client.write_event(one)
            else:
                assert client._writer is not None
                client._writer.write(one)
        return await hear(client, end="never")

    heard = with_client(home, speak)

    assert heard.error is not None and heard.error.code == code
    assert heard.error.text.endswith(".") and "audio-stop" not in heard.kinds
    assert {job["status"] for job in home.wait_idle()} <= {"succeeded", "cancelled"}


def test_connection_that_is_reset_leaves_nothing_busy(home: Home) -> None:
    event = json.dumps(
        {"type": "synthesize", "data": {"text": many("She"), "voice": {"name": "Ada"}}}
    )
    for _ in range(5):
        with socket.create_connection((home.host, home.port)) as raw:
            raw.sendall(event.encode() + b"\n")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert {job["status"] for job in home.wait_idle()} <= {"succeeded", "cancelled"}
    assert with_client(home, speak_again).kinds == [*WHOLE, "synthesize-stopped"]


async def speak_again(client: AsyncTcpClient) -> Heard:
    await client.write_event(SynthesizeStart(ADA).event())
    await client.write_event(SynthesizeChunk("It still speaks.").event())
    await client.write_event(SynthesizeStop().event())
    return await hear(client, end="synthesize-stopped")


def test_key_of_its_own_is_one_row_that_may_speak_and_read(home: Home) -> None:
    keys = home.api.get("/keys").json()["results"]
    own = [key for key in keys if key["name"].startswith("Wyoming, ")]
    assert [key["scopes"] for key in own] == [["read", "jobs"]]
