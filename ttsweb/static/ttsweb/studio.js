/* The Studio: send a text, play it while it is rendered, then offer its file and another take. */
"use strict";

(() => {
  const MOST_SEED = 2 ** 48; // a number that JSON, shells and people copy whole

  document.addEventListener("DOMContentLoaded", () => {
    const page = document.getElementById("studio");
    const form = document.getElementById("studio-form");
    const { text, voice, format } = form.elements;
    const button = form.querySelector("button[type=submit]");
    const results = document.getElementById("studio-results");
    const said = results.querySelector("[data-said]");
    const clip = form.querySelector("audio");
    const most = Number(text.dataset.max);
    const number = new Intl.NumberFormat("en");
    const length = () => [...text.value].length; // as the server counts: characters, not halves of them
    let playing = null;
    let made = 0;

    const request = (seed) => ({
      text: text.value,
      voice: voice.value,
      format: format.value,
      ...(seed ? { seed } : {}),
    });

    /* --- what is wrong, beside the field it is about ------------------------------------------- */

    const complain = (name, sentence) => {
      form.querySelector(`[data-error="${name}"]`).textContent = sentence;
      if (sentence) form.elements[name]?.setAttribute("aria-invalid", "true");
      else form.elements[name]?.removeAttribute("aria-invalid");
    };

    const check = () => {
      for (const name of ["text", "voice", "form"]) complain(name, "");
      const chars = length();
      if (!text.value.trim()) complain("text", "Write a text first.");
      else if (chars > most)
        complain("text", `The text has ${number.format(chars)} characters; at most ${number.format(most)} are allowed. Shorten it, or add it as a book, which may be longer.`);
      if (!voice.value) complain("voice", "No voice is ready. Add one at “Voices”, or wait until its clips are encoded.");
      const wrong = form.querySelector("[aria-invalid=true]");
      wrong?.focus();
      return !wrong;
    };

    const refuse = (error) => {
      if (error.status === 401 || (error.status === 403 && error.code === "not_authenticated")) {
        const place = form.querySelector('[data-error="form"]');
        place.replaceChildren("You are logged out. ", ttsweb.make("a", { href: page.dataset.login, class: "tts-link" }, "Log in again"), ", and send the text once more.");
        return;
      }
      complain("form", error.status ? error.message : "The server cannot be reached. Check that it is running, and try again.");
    };

    /* --- one take ------------------------------------------------------------------------------ */

    const stopSound = () => {
      playing?.stop();
      playing = null;
    };

    const card = (body) => {
      made += 1;
      const state = ttsweb.make("span", { class: "tts-quiet" });
      const badge = ttsweb.make("span", { class: "tts-badge" }, "queued");
      const bar = ttsweb.make("progress", { class: "tts-progress", max: 1, value: 0, "aria-label": "Rendered" });
      const place = ttsweb.make("div", { class: "tts-row-tight" });
      const start = body.text.trim().slice(0, 60);
      const title = `Take ${made}: ${start}${body.text.trim().length > 60 ? "…" : ""}`;
      const item = ttsweb.make("li", { "data-state": "queued" }, ttsweb.make("p", { class: "tts-break" }, ttsweb.make("strong", {}, title)), ttsweb.make("div", { class: "tts-row-tight" }, badge, bar, state), place);
      results.hidden = false;
      results.querySelector("[data-takes]").prepend(item);
      return { item, state, badge, bar, place, title };
    };

    const say = (one, sentence) => {
      one.state.textContent = sentence;
      said.textContent = sentence;
    };

    const show = (one, job) => {
      one.item.dataset.state = job.status;
      one.badge.textContent = job.status;
      one.badge.className = `tts-badge tts-${{ running: "encoding", partial: "encoding", succeeded: "ready", failed: "failed" }[job.status] || "pending"}`;
      one.bar.value = job.progress;
    };

    const listen = (one, job) => {
      stopSound();
      const stop = ttsweb.make("button", { type: "button", class: "tts-button tts-small" }, "Stop the sound");
      const player = ttsweb.playLive(`${page.dataset.jobs}/${job.id}/audio`, {
        onPlay: () => {
          one.item.dataset.sound = "playing";
          if (one.item.dataset.state === "queued") show(one, { status: "running", progress: 0 });
          say(one, "Playing while it is rendered");
          one.place.prepend(stop);
        },
        onEnd: () => {
          one.item.dataset.sound = "ended";
          stop.remove();
        },
      });
      stop.addEventListener("click", () => {
        stopSound();
        one.item.dataset.sound = "stopped";
        stop.remove();
      });
      playing = {
        stop: () => {
          player.stop();
          stop.remove();
        },
      };
    };

    const finish = (one, job, body) => {
      one.bar.remove();
      const again = ttsweb.make("button", { type: "button", class: "tts-button" }, "Another take");
      again.addEventListener("click", () => render({ ...body, seed: 1 + Math.floor(Math.random() * (MOST_SEED - 1)) }));
      const url = `${page.dataset.jobs}/${job.id}/audio`;
      const open = page.dataset.jobPage
        ? ttsweb.make("a", { class: "tts-link", href: page.dataset.jobPage.replace(/[0-]{36}/, job.id) }, "Open the job")
        : null;
      if (job.audio_url) {
        const player = ttsweb.make("audio", { controls: true, preload: "none", src: url, "aria-label": `Play ${one.title}` });
        player.addEventListener("play", stopSound);
        const save = ttsweb.make("a", { class: "tts-link", href: url, download: "" }, `Download (${body.format})`);
        one.place.append(player, save, again, open || "");
        const missing = job.segments_failed ? ` ${job.segments_failed} of ${ttsweb.refusals(job.segments_total, "segment")} failed; open the job to see why.` : "";
        say(one, `${job.audio_seconds.toFixed(1)} s of audio.${missing}`);
      } else {
        one.place.append(again, open || "");
        say(one, job.error_message || `The job is ${job.status}.`);
      }
    };

    const follow = async (one, job, body) => {
      const cancel = ttsweb.make("button", { type: "button", class: "tts-button tts-small", "data-cancel": true }, "Cancel");
      cancel.addEventListener("click", () => {
        cancel.disabled = true;
        stopSound();
        ttsweb.ask(`${page.dataset.jobs}/${job.id}/cancel`, { method: "POST" }).catch(refuse);
      });
      one.place.append(cancel);
      const notice = document.querySelector("[data-notice]");
      say(one, notice ? `Queued. ${notice.textContent}` : "Queued…");
      const now = await ttsweb.followJob(`${page.dataset.jobs}/${job.id}`, job, (seen) => {
        if (!seen) {
          say(one, "The server cannot be reached. The job continues; this page asks again.");
          return;
        }
        show(one, seen);
        if (seen.status === "queued" && seen.queue_position) say(one, `Queued, at position ${seen.queue_position}`);
        if (seen.status === "running" && !one.item.dataset.sound) say(one, "Rendering…");
      });
      cancel.remove();
      finish(one, now, body);
    };

    const render = async (body) => {
      button.disabled = true;
      ttsweb.allowSound();
      clip.pause();
      let job = null;
      try {
        job = await ttsweb.ask(page.dataset.jobs, { method: "POST", body: { ...body, live: true } });
      } catch (error) {
        refuse(error);
      }
      button.disabled = false;
      if (!job) return;
      const one = card(body);
      listen(one, job);
      ttsweb.refresh();
      try {
        await follow(one, job, body);
      } catch (error) {
        say(one, error.message);
      }
      ttsweb.refresh();
    };

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (check()) render(request(0));
    });
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });

    /* --- the request as code ------------------------------------------------------------------- */

    const api = `${page.dataset.origin}/api/v1`;
    const inShell = (value) => `'${value.replaceAll("'", "'\\''")}'`;
    const code = {
      curl: (body) => `export TTS_API_KEY=tts_…  # your API key
JOB=$(curl -sS ${api}/jobs \\
  -H "Authorization: Bearer $TTS_API_KEY" -H "Content-Type: application/json" \\
  -d ${inShell(JSON.stringify(body))} | jq -r .id)
while curl -sS "${api}/jobs/$JOB?wait=30" -H "Authorization: Bearer $TTS_API_KEY" |
  jq -e '.status == "queued" or .status == "running"' > /dev/null; do :; done
curl -sS --fail-with-body "${api}/jobs/$JOB/audio" \\
  -H "Authorization: Bearer $TTS_API_KEY" -o speech.${body.format}`,
      python: (body) => `import json
import os
from urllib.request import Request, urlopen

API = ${JSON.stringify(api)}
HEADERS = {
    "Authorization": "Bearer " + os.environ["TTS_API_KEY"],
    "Content-Type": "application/json",
}


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    return urlopen(Request(API + path, data, HEADERS))


job = json.load(ask("/jobs", {
    "text": ${JSON.stringify(body.text)},
    "voice": ${JSON.stringify(body.voice)},
    "format": ${JSON.stringify(body.format)},
}))
while job["status"] in ("queued", "running"):
    job = json.load(ask(f"/jobs/{job['id']}?wait=30"))
with ask(f"/jobs/{job['id']}/audio") as audio, open("speech.${body.format}", "wb") as file:
    file.write(audio.read())
`,
    };

    const refresh = () => {
      document.querySelector("[data-count]").textContent = `${number.format(length())} of at most ${number.format(most)} characters`;
      for (const [name, write] of Object.entries(code)) {
        const text = write(request(0));
        document.querySelector(`[data-code="${name}"]`).textContent = text;
        document.querySelector(`[data-of="${name}"]`).dataset.copy = text;
      }
    };

    const chooseClip = () => {
      const url = voice.selectedOptions[0]?.dataset.clip || "";
      form.querySelector("[data-clip-box]").hidden = !url;
      if (url && clip.getAttribute("src") !== url) clip.src = url;
    };

    /* --- voices that came or went while the page was open: live.js carries their list ---------- */

    let shown = voice.value;
    const chooseVoice = () => {
      if (voice.value === shown) return;
      shown = voice.value;
      complain("voice", "");
      chooseClip();
      refresh();
    };

    document.addEventListener("ttsweb:fresh", chooseVoice);
    form.addEventListener("input", refresh);
    voice.addEventListener("change", chooseVoice);
    format.addEventListener("change", refresh);
    chooseClip();
    refresh();
  });
})();
