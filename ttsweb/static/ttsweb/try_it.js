/* Speak a sentence with the voice of this page, through the API, and play it. */
"use strict";

(() => {
  const POLL_SECONDS = 20;

  const say = async (box, form) => {
    const state = box.querySelector("[data-state]");
    const place = box.querySelector("[data-audio]");
    const button = form.querySelector("button");
    const token = document.querySelector("input[name=csrfmiddlewaretoken]")?.value || "";
    const ask = async (url, options) => {
      const answer = await fetch(url, { credentials: "same-origin", ...options });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.detail || found.title || `HTTP ${answer.status}`);
      return found;
    };
    button.disabled = true;
    place.replaceChildren();
    state.textContent = "Queued…";
    try {
      let job = await ask(box.dataset.jobs, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-CSRFToken": token },
        body: JSON.stringify({
          text: form.elements.try_text.value,
          voice: box.dataset.voice,
          seed: Number(form.elements.try_seed.value || 0),
          retention: 3600,
        }),
      });
      while (["queued", "running"].includes(job.status)) {
        const done = Math.round(100 * job.progress);
        state.textContent = job.status === "queued" ? "Queued…" : `Rendering… ${done} %`;
        job = await ask(`${box.dataset.jobs}/${job.id}?wait=${done ? 2 : POLL_SECONDS}`);
      }
      if (!job.audio_url) throw new Error(job.error_message || `The job is ${job.status}.`);
      const player = document.createElement("audio");
      player.controls = true;
      player.src = job.audio_url;
      player.setAttribute("aria-label", "Play the sentence");
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
