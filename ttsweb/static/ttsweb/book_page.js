/* The page of one book: its buttons, its chapters, its player, what people say of it. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});

  const act = async (button) => {
    const state = document.querySelector("[data-book-state]");
    const body = {};
    const voice = document.querySelector("[data-start-voice]");
    if (button.dataset.action === "start" && voice && voice.value) body.voice = voice.value;
    if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
    button.disabled = true;
    state.textContent = "Asking…";
    try {
      await ttsweb.ask(button.dataset.url, { method: "POST", body });
      window.location.reload();
    } catch (error) {
      state.textContent = error.message;
      button.disabled = false;
    }
  };

  /* Play one chapter: from its place in the file, else from its segments, one after another. */
  const play = async (button) => {
    const player = document.querySelector("[data-book-player]");
    if (player && button.dataset.start) {
      player.currentTime = Number(button.dataset.start);
      player.play().catch(() => {}); // where the browser wants a click first
      player.scrollIntoView({ block: "nearest" });
      return;
    }
    const row = button.closest("[data-chapter]");
    const details = row.querySelector("details");
    details.open = true;
    await load(details);
    const first = details.querySelector("audio");
    if (first) first.play().catch(() => {});
  };

  const load = async (details, url = details.dataset.url, anew = false) => {
    const place = details.querySelector("[data-segments]");
    if (place.dataset.loaded && !anew) return;
    place.textContent = "Loading…";
    try {
      const answer = await fetch(url, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      // Our own server's part of the page, whose texts are escaped there.
      place.innerHTML = await answer.text();
      place.dataset.loaded = "1";
      follow(place);
    } catch (error) {
      place.textContent = `The segments could not be loaded: ${error.message}`;
    }
  };

  /* Let a segment begin when the one before it has ended. */
  const follow = (place) => {
    const players = [...place.querySelectorAll("audio")];
    players.forEach((one, index) => one.addEventListener("ended", () => players[index + 1]?.play().catch(() => {})));
  };

  const seekByWave = (event) => {
    const canvas = event.target.closest("canvas[data-seek]");
    const player = document.querySelector("[data-book-player]");
    if (!canvas || !player) return;
    const seek = () => {
      const box = canvas.getBoundingClientRect();
      player.currentTime = ((event.clientX - box.left) / box.width) * player.duration;
      player.play().catch(() => {});
    };
    if (player.readyState) return seek();
    player.addEventListener("loadedmetadata", seek, { once: true });
    player.preload = "metadata";
    player.load();
  };

  const saveMetadata = async (form) => {
    const state = form.querySelector("[data-state]");
    const said = {};
    for (const field of form.querySelectorAll("[data-metadata]")) {
      const text = field.value.trim();
      if (text === field.defaultValue.trim()) continue;
      if (!text) said[field.name] = null;
      else said[field.name] = "list" in field.dataset ? text.split("\n").map((one) => one.trim()).filter(Boolean) : text;
    }
    const cover = form.querySelector("[data-cover]");
    if (!Object.keys(said).length && !cover.files.length) {
      state.textContent = "Nothing was changed.";
      return;
    }
    state.textContent = "Saving…";
    try {
      if (Object.keys(said).length) await ttsweb.ask(form.dataset.url, { method: "PATCH", body: { metadata: said } });
      if (cover.files.length) {
        const body = new FormData();
        body.append("file", cover.files[0]);
        await ttsweb.ask(cover.dataset.cover, { method: "PUT", body });
      }
      window.location.reload();
    } catch (error) {
      state.textContent = error.message;
    }
  };

  /* Say whether the table of chapters may be shown anew: nobody has opened one of them. */
  window.ttswebIdle = () => !document.querySelector("[data-chapter] details[open]");

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action], [data-play], [data-page]");
    if (!button) return seekByWave(event);
    if (button.dataset.action) act(button);
    else if ("play" in button.dataset) play(button);
    else load(button.closest("details"), button.dataset.page, true);
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details[data-url]") && event.target.open) load(event.target);
  }, true);
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-book-metadata]")) return;
    event.preventDefault();
    saveMetadata(event.target);
  });
})();
