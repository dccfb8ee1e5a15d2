/* Play a job's audio while it is rendered. The samples of a WAV file are scheduled one piece after the
   other: unlike an audio element this works in every browser for a file whose length nobody knows yet. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const LEAD_SECONDS = 0.25; // collected before the sound begins, and again where rendering falls behind
  const RETRY_MS = 2000;
  const HEAD_BYTES = 44; // of the file; what follows are samples

  let context = null;

  /* Browsers allow sound after a click alone: call this in the click. */
  ttsweb.allowSound = () => {
    context = context || new AudioContext();
    context.resume();
  };

  /* Play what `url` sends. `onPlay` is called at the first sound, `onEnd` after the last one. */
  ttsweb.playLive = (url, { onPlay, onEnd }) => {
    const stopping = new AbortController();
    const sources = new Set();
    let at = 0;
    let begun = false;
    let received = false;

    const finish = () => {
      if (received && !sources.size && !stopping.signal.aborted) onEnd();
    };

    const schedule = (samples, rate) => {
      const buffer = context.createBuffer(1, samples.length, rate);
      buffer.getChannelData(0).set(samples);
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      if (at < context.currentTime) at = context.currentTime + LEAD_SECONDS;
      source.start(at);
      at += buffer.duration;
      sources.add(source);
      source.onended = () => {
        sources.delete(source);
        finish();
      };
      if (!begun) onPlay();
      begun = true;
    };

    const read = async () => {
      const answer = await fetch(`${url}?live=1&format=wav`, { credentials: "same-origin", signal: stopping.signal });
      if (answer.status === 503) {
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        if (!stopping.signal.aborted) await read();
        return;
      }
      if (!answer.ok) return;
      const rate = Number(answer.headers.get("TTS-Sample-Rate"));
      const reader = answer.body.getReader();
      let rest = new Uint8Array(0);
      let head = HEAD_BYTES;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const part = value.subarray(Math.min(head, value.length));
        head -= value.length - part.length;
        const bytes = new Uint8Array(rest.length + part.length);
        bytes.set(rest);
        bytes.set(part, rest.length);
        const whole = bytes.length - (bytes.length % 2);
        rest = bytes.slice(whole);
        if (!whole) continue;
        const view = new DataView(bytes.buffer, 0, whole);
        schedule(Float32Array.from({ length: whole / 2 }, (_, index) => view.getInt16(2 * index, true) / 32768), rate);
      }
    };

    // What breaks off here is told by the job, which is asked for beside; the sound just ends.
    read().catch(() => {}).finally(() => {
      received = true;
      finish();
    });

    return {
      stop: () => {
        stopping.abort();
        for (const source of sources) {
          source.onended = null;
          source.stop();
        }
        sources.clear();
      },
    };
  };
})();
