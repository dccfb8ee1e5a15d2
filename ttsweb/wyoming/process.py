"""Serve the Wyoming protocol on an open socket: what `./tts serve --wyoming` runs beside the site.

As `python -m ttsweb.wyoming.process DESCRIPTOR URL HOST`; TTS_API_KEY is the key that it acts with.
It is a client of the site and needs neither Django nor the database.
"""

from __future__ import annotations

import asyncio
import logging
import logging.config
import signal
import socket
import sys
from contextlib import aclosing, suppress
from typing import NamedTuple

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_read_event, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.server import AsyncEventHandler
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from synth.card import Card, read_card
from ttsweb import settings
from ttsweb.client import ClientError
from ttsweb.settings import MAX_TEXT_CHARS
from ttsweb.wyoming.speech import BYTES_PER_SAMPLE, GrowingSpeech, OfferedVoice, Service

MAX_EVENT_BYTES = 4 * MAX_TEXT_CHARS + 10_000  # a UTF-8 character has up to 4 bytes
IDLE_SECONDS = 120.0  # without a word of a client for whom nothing is spoken
MAX_WAITING = 8  # texts that one client has sent ahead
SPOKEN_LANGUAGE = "en"  # where neither voice nor model names one: voices without any are not shown
CHUNK_BYTES = 16_384  # of audio in one event

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """What a client sent is not acted on; `code` is stable, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Asked(NamedTuple):
    """A text to speak; `is_stream` says that it comes in pieces."""

    speech: GrowingSpeech
    is_stream: bool


class _BoundedReader(asyncio.StreamReader):
    """Read an event's parts as another reader does, but none that says it is very long."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader

    async def readline(self) -> bytes:
        return await self._reader.readline()

    async def readexactly(self, n: int) -> bytes:
        if n > MAX_EVENT_BYTES:
            raise ValueError(f"{n} bytes are announced")
        return await self._reader.readexactly(n)


class Connection(AsyncEventHandler):
    """One client: its events are read while its texts are spoken, one after the other.

    An error is told by an `error` event, and the connection is closed: clients wait for the end of
    the audio or of the connection, and audio that ended early must not be taken for the whole.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: Service,
        card: Card,
    ) -> None:
        super().__init__(reader, writer)
        self._bounded, self._service, self._card = _BoundedReader(reader), service, card
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue(MAX_WAITING)
        self._now: _Asked | None = None
        self._stream: GrowingSpeech | None = None  # whose text is still being written

    async def run(self) -> None:
        """Serve the client until he leaves, or an error ends it; nothing of his goes on then."""
        tasks = [asyncio.create_task(work) for work in (self._read_events(), self._speak_all())]
        error: ClientError | RefusedError | None = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except (ClientError, RefusedError) as refused:
            error = refused
        except (OSError, EOFError):
            pass  # the client has gone
        except Exception:
            logger.exception("a Wyoming client could not be served")
            error = RefusedError("internal_error", "The request failed; the log says why.")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if error is not None:
                await self._tell_error(error.code, str(error))
            self.writer.close()
            await self.disconnect()

    async def disconnect(self) -> None:
        """Let go of what was to be spoken."""
        left = [] if self._now is None else [self._now]
        while not self._asked.empty():
            left.append(self._asked.get_nowait())
        for one in left:
            await one.speech.close()

    async def handle_event(self, event: Event) -> bool:
        """Act on an event; one of another kind means nothing here.

        Raises:
            RefusedError: it cannot be acted on.
            ClientError: the service refuses.
        """
        kind = event.type
        if Describe.is_type(kind):
            await self.write_event(await self._info())
        elif Ping.is_type(kind):
            await self.write_event(Pong(text=Ping.from_event(event).text).event())
        elif SynthesizeStart.is_type(kind):
            start = SynthesizeStart.from_event(event)
            self._stream = await self._ask(start.voice, start.text_format, is_stream=True)
        elif SynthesizeChunk.is_type(kind) and self._stream is not None:
            self._add(self._stream, SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(kind) and self._stream is not None:
            self._stream.end()
            self._stream = None
        elif Synthesize.is_type(kind) and self._stream is None:
            # Inside a stream it repeats the text for servers that know no streams.
            whole = Synthesize.from_event(event)
            speech = await self._ask(whole.voice, whole.text_format, is_stream=False)
            self._add(speech, whole.text)
            speech.end()
        return True

    async def _read_events(self) -> None:
        while (event := await self._next_event()) is not None:
            try:
                await self.handle_event(event)
            except (AttributeError, KeyError, TypeError) as error:  # of the event's own data
                raise _invalid(f"{event.type} lacks what it needs") from error

    async def _next_event(self) -> Event | None:
        """Return what the client sends next, None when he has gone.

        Raises:
            RefusedError: event_invalid, client_idle.
        """
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    event = await async_read_event(self._bounded)
            except TimeoutError:
                if self._stream is None and self._now is not None:
                    continue  # he listens
                raise RefusedError(
                    "client_idle", f"Nothing was sent for {IDLE_SECONDS:g} s."
                ) from None
            except (AttributeError, KeyError, TypeError) as error:
                raise _invalid("it is no event") from error
            if event is None and not self.reader.at_eof():
                raise _invalid(f"it is no JSON line, or has more than {MAX_EVENT_BYTES} bytes")
            return event

    async def _ask(
        self, voice: SynthesizeVoice | None, text_format: str | None, *, is_stream: bool
    ) -> GrowingSpeech:
        """Put a text into this client's queue; it is added to what is returned."""
        if text_format not in (None, "text"):
            raise RefusedError(
                "text_format_not_supported", f"The text format {text_format!r} is not supported."
            )
        if self._stream is not None:
            raise _invalid("a text was begun before the one before it was ended")
        if self._asked.full():
            raise RefusedError("too_many_texts", f"{MAX_WAITING} texts of this client wait.")
        name, language = await self._choose(voice)
        speech = GrowingSpeech(self._service, name, language)
        self._asked.put_nowait(_Asked(speech, is_stream))
        return speech

    async def _choose(self, voice: SynthesizeVoice | None) -> tuple[str, str]:
        """Return the voice, by name or id, and the language that was asked for, if any."""
        name, language = (None, None) if voice is None else (voice.name, voice.language)
        if name:
            return name, language or ""
        offered = await self._service.voices()
        wanted = (language or "").split("-")[0].lower()
        for one in offered:
            if wanted in {tag.split("-")[0].lower() for tag in self._languages(one)} or not wanted:
                return one.id, language or ""
        what = f" for the language {language!r}" if language else ""
        raise RefusedError("voice_not_found", f"There is no voice{what} that can speak now.")

    def _add(self, speech: GrowingSpeech, text: str) -> None:
        if speech.num_chars + len(text) > MAX_TEXT_CHARS:
            raise RefusedError("text_too_long", f"A text has at most {MAX_TEXT_CHARS} characters.")
        speech.add(text)

    async def _speak_all(self) -> None:
        while True:
            asked = self._now = await self._asked.get()
            await self._speak(asked.speech)
            self._now = None
            if asked.is_stream:
                await self.write_event(SynthesizeStopped().event())

    async def _speak(self, speech: GrowingSpeech) -> None:
        """Send a text's audio, all of it between one `audio-start` and one `audio-stop`."""
        rate = num_bytes = 0
        async with aclosing(speech.parts()) as parts:
            async for part in parts:
                if not rate:
                    rate = part.rate
                    await self.write_event(AudioStart(rate, BYTES_PER_SAMPLE, 1, 0).event())
                elif part.rate != rate:  # another model was loaded meanwhile
                    raise RefusedError("rate_changed", "The sample rate changed within the text.")
                num_bytes += len(part.audio)
                await self._send_audio(rate, part.audio)
        milliseconds = round(num_bytes / BYTES_PER_SAMPLE / rate * 1000)
        await self.write_event(AudioStop(timestamp=milliseconds).event())

    async def _send_audio(self, rate: int, audio: bytes) -> None:
        for start in range(0, len(audio), CHUNK_BYTES):
            piece = audio[start : start + CHUNK_BYTES]
            await self.write_event(AudioChunk(rate, BYTES_PER_SAMPLE, 1, piece).event())

    async def _tell_error(self, code: str, sentence: str) -> None:
        logger.info("a Wyoming client is told an error: %s", code)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self.write_event(Error(text=sentence, code=code).event())

    async def _info(self) -> Event:
        offered = await self._service.voices()
        names = [voice.name for voice in offered]
        by = Attribution(name="ttsweb", url="")
        voices = [
            TtsVoice(
                name=voice.name if names.count(voice.name) == 1 else voice.id,
                description=voice.name,  # what Home Assistant shows
                attribution=by,
                installed=True,
                version=None,
                languages=self._languages(voice),
            )
            for voice in offered
        ]
        program = TtsProgram(
            name="ttsweb",
            description=f"ttsweb with the model {self._card.name}",
            attribution=by,
            installed=True,
            version=None,
            voices=voices,
            supports_synthesize_streaming=True,
        )
        return Info(tts=[program]).event()

    def _languages(self, voice: OfferedVoice) -> list[str]:
        if voice.language:
            return [voice.language]
        return list(self._card.languages) or [SPOKEN_LANGUAGE]


def _invalid(why: str) -> RefusedError:
    return RefusedError("event_invalid", f"The event cannot be used: {why}.")


MAX_CONNECTIONS = 100
STOP_SECONDS = 5.0  # to tell the service what is not heard any more


async def serve(listening: socket.socket, service: Service) -> None:
    """Serve clients until SIGTERM comes."""
    card = read_card(settings.CHECKPOINT)
    clients: set[asyncio.Task[None]] = set()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(clients) >= MAX_CONNECTIONS:
            sentence = f"This server has {MAX_CONNECTIONS} Wyoming clients, which is its limit."
            error = Error(text=sentence, code="too_many_clients")
            await async_write_event(error.event(), writer)
            writer.close()
            return
        task = asyncio.create_task(Connection(reader, writer, service, card).run())
        clients.add(task)
        task.add_done_callback(clients.discard)

    server = await asyncio.start_server(connect, sock=listening)
    await stopped.wait()
    server.close()
    for task in clients:
        task.cancel()
    if clients:
        await asyncio.wait(clients, timeout=STOP_SECONDS)


async def main(descriptor: int, url: str, host: str) -> None:
    async with Service(url, host, settings.API_KEY or "") as service:
        with socket.socket(fileno=descriptor) as listening:
            await serve(listening, service)


if __name__ == "__main__":
    logging.config.dictConfig(settings.LOGGING)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
