/* The clips of a voice's form: drop files, record, hear and look at a clip before it is saved. */
"use strict";

(() => {
  const ttsweb = window.ttsweb;
  const { make } = ttsweb;
  const IS_CLIP = /^clips-\d+-audio$/;
  const POLL_MS = 700;

  const settings = () => {
    const { shortest, longest, bytes, transcripts } = document.getElementById("tts-clip-limits").dataset;
    return { shortest: Number(shortest), longest: Number(longest), bytes: Number(bytes), transcripts };
  };

  const inputs = () =>
    [...document.querySelectorAll('input[type="file"]')].filter((input) => IS_CLIP.test(input.name));

  const put = (input, file) => {
    const transfer = new DataTransfer();
    transfer.items.add(file);
    input.files = transfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  };

  const describe = (found) =>
    `${found.seconds.toFixed(1)} s · ${found.channels === 1 ? "mono" : `${found.channels} channels`} · ` +
    `peak ${found.peak.toFixed(1)} dBFS · level ${found.rms.toFixed(1)} dBFS · ` +
    `${Math.round(100 * found.silenceShare)} % silence`;

  const report = async (input, box) => {
    const limits = settings();
    box.replaceChildren();
    const file = input.files[0];
    if (!file) return;
    if (box.heard) URL.revokeObjectURL(box.heard);
    box.heard = URL.createObjectURL(file);
    const player = make("audio", { controls: true, preload: "metadata", src: box.heard, "aria-label": `Play ${file.name}` });
    const line = make("p", { class: "tts-quiet" }, "Measuring…");
    box.append(player, line);
    const remark = (isRefused, text) =>
      box.append(make("p", { class: isRefused ? "tts-remark tts-bad" : "tts-remark" }, text));
    if (limits.bytes && file.size > limits.bytes) {
      remark(true, `The file has ${(file.size / 1e6).toFixed(1)} MB; at most ${(limits.bytes / 1e6).toFixed(1)} MB are allowed.`);
    }
    try {
      const found = await ttsweb.measureClip(file);
      if (input.files[0] !== file) return; // another one was chosen meanwhile
      const canvas = make("canvas", { class: "tts-wave tts-wave-wide", role: "img", "data-peaks": JSON.stringify(found.peaks), "aria-label": `Waveform of ${file.name}` });
      box.insertBefore(canvas, line);
      line.textContent = `${file.name} · ${describe(found)}`;
      ttsweb.drawWaveform(canvas, found.peaks);
      for (const [isRefused, text] of ttsweb.judgeClip(found, limits)) remark(isRefused, text);
    } catch {
      line.textContent = `${file.name}: this browser cannot read the file; the server will check it.`;
    }
  };

  const recordButton = (input, zone) => {
    const button = make("button", { type: "button", class: "tts-button" }, "Record");
    const state = make("span", { class: "tts-quiet", "aria-live": "polite" });
    const meter = make("meter", { min: 0, max: 1, high: 0.95, value: 0, class: "tts-meter", hidden: true, "aria-label": "Level of the recording" });
    if (!ttsweb.canRecord()) {
      button.disabled = true;
      state.textContent = "Recording works only over HTTPS or on localhost.";
    }
    let recording = null;
    button.addEventListener("click", async () => {
      if (recording) {
        recording.stop();
        return;
      }
      button.disabled = true;
      try {
        recording = await ttsweb.startRecording(
          settings().longest,
          (level, seconds) => {
            meter.value = level;
            state.textContent = `${Math.floor(seconds)} s`;
          },
          (file) => {
            recording = null;
            meter.hidden = true;
            button.textContent = "Record again";
            button.setAttribute("aria-pressed", "false");
            state.textContent = "";
            put(input, file);
          },
        );
        meter.hidden = false;
        button.textContent = "Stop";
        button.setAttribute("aria-pressed", "true");
      } catch (error) {
        state.textContent = `The microphone cannot be used: ${error.message}`;
      }
      button.disabled = false;
    });
    zone.append(button, meter, state);
  };

  /* Return what a transcriber hears in a file, once it has heard it. */
  const hear = async (url, file) => {
    const body = new FormData();
    body.append("audio", file);
    body.append("language", document.getElementById("id_language")?.value.trim() || "");
    let row = await ttsweb.ask(url, { method: "POST", body });
    while (["queued", "transcribing"].includes(row.status)) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      row = await ttsweb.ask(`${url}/${row.id}`);
    }
    if (row.status !== "done") throw new Error(row.error_message);
    return row.text;
  };

  /* Offer to have the words of a new clip proposed; what somebody has written is never replaced. */
  const offerProposal = (input) => {
    const { transcripts } = settings();
    const words = document.getElementById(input.id.replace(/audio$/, "transcript"));
    if (!transcripts || !words) return;
    const button = make("button", { type: "button", class: "tts-button", disabled: true }, "Propose the words");
    const state = make("span", { class: "tts-quiet", role: "status" }, "once a file is chosen above");
    words.after(make("div", { class: "tts-propose" }, button, state));
    input.addEventListener("change", () => {
      button.disabled = !input.files.length;
      state.textContent = "";
    });
    button.addEventListener("click", async () => {
      const file = input.files[0];
      button.disabled = true;
      state.textContent = "The transcriber listens…";
      try {
        const heard = await hear(transcripts, file);
        if (input.files[0] !== file) return; // another one was chosen meanwhile
        if (words.value.trim()) {
          state.textContent = `The transcriber heard: “${heard}”. What you have written stays.`;
        } else {
          words.value = heard;
          words.focus();
          state.textContent = "This is a proposal: listen to the clip, and correct every word before you save.";
        }
      } catch (error) {
        if (input.files[0] === file) state.textContent = error.message;
      } finally {
        button.disabled = !input.files.length;
      }
    });
  };

  const setUp = (input) => {
    if (input.dataset.ttsReady) return;
    input.dataset.ttsReady = "yes";
    const zone = make("div", { class: "tts-drop" });
    zone.append(make("span", { class: "tts-quiet" }, "Drop files here, choose one, or"));
    recordButton(input, zone);
    const box = make("div", { class: "tts-report" });
    const field = input.closest(".field-audio > div") || input.parentElement;
    field.append(zone, box);
    input.addEventListener("change", () => report(input, box));
    offerProposal(input);
  };

  const addRow = () => {
    const link = document.querySelector("#clips-group a.add-row");
    if (!link) return false;
    const before = inputs().length;
    link.click();
    for (const input of inputs()) setUp(input);
    return inputs().length > before;
  };

  /* Put files into rows: `first`, if it is said, then rows without one, then new rows. */
  const take = (files, first) => {
    const sounds = [...files].filter((file) => file.type.startsWith("audio/") || file.type.startsWith("video/") || /\.(wav|flac|mp3|ogg|opus|m4a|webm)$/i.test(file.name));
    for (const file of sounds) {
      const isFree = (input) => !input.files.length && !input.name.includes("__prefix__");
      let target = first;
      first = null;
      if (!target) target = inputs().find((input) => isFree(input) && !document.getElementById(input.id.replace(/audio$/, "clip"))?.value);
      if (!target && addRow()) target = inputs().filter(isFree).pop();
      if (target) put(target, file);
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const group = document.getElementById("clips-group");
    if (!group || !document.getElementById("tts-clip-limits")) return;
    for (const input of inputs()) setUp(input);
    document.addEventListener("formset:added", () => inputs().forEach(setUp));
    const rowOf = (event) => event.target.closest(".inline-related, [data-inline-formset-row]");
    ttsweb.acceptDrops(group, (files, event) => {
      const row = rowOf(event);
      const input = row && [...row.querySelectorAll('input[type="file"]')].find((one) => IS_CLIP.test(one.name));
      take(files, files.length === 1 ? input : null);
    });
  });
})();
