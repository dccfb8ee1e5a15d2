/* Speak a sentence with the voice of this page, through the API, and play it. */
"use strict";

(() => {
  const say = async (box, form) => {
    const state = box.querySelector("[data-state]");
    const place = box.querySelector("[data-audio]");
    const button = form.querySelector("button");
    const show = (job) => {
      if (!job) state.textContent = "The server cannot be reached. The job continues; this page asks again.";
      else state.textContent = job.status === "queued" ? "Queued…" : `Rendering… ${Math.round(100 * job.progress)} %`;
    };
    button.disabled = true;
    place.replaceChildren();
    state.textContent = "Queued…";
    try {
      const body = { text: form.elements.try_text.value, voice: box.dataset.voice, seed: Number(form.elements.try_seed.value || 0), retention: 3600 };
      const queued = await ttsweb.ask(box.dataset.jobs, { method: "POST", body });
      const job = await ttsweb.followJob(`${box.dataset.jobs}/${queued.id}`, queued, show);
      if (!job.audio_url) throw new Error(job.error_message || `The job is ${job.status}.`);
      const player = ttsweb.make("audio", { controls: true, src: job.audio_url, "aria-label": "Play the sentence" });
      place.append(player);
      state.textContent = `${job.audio_seconds.toFixed(1)} s of audio`;
      player.play().catch(() => {}); // where the browser wants a click first
    } catch (error) {
      state.textContent = error.message;
    }
    button.disabled = false;
  };

  document.addEventListener("submit", (event) => {
    const box = event.target.closest("[data-try-it]");
    if (!box) return;
    event.preventDefault();
    say(box, event.target);
  });
})();
