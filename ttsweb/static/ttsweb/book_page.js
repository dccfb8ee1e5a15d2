/* The page of one book: its chapters, its player, what people say of it. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});

  /* Play one chapter: from its place in the file, else from its segments, one after another. */
  const play = async (button) => {
    const player = document.querySelector("[data-whole-player]");
    if (player && button.dataset.start) {
      ttsweb.playFrom(player, Number(button.dataset.start));
      player.scrollIntoView({ block: "nearest" });
      return;
    }
    const details = button.closest("[data-chapter]").querySelector("details");
    details.open = true;
    await load(details);
    const first = details.querySelector("[data-listen]");
    if (first) ttsweb.listen(first);
  };

  const load = async (details, url) => {
    const place = details.querySelector("[data-segments]");
    if (!place.dataset.part) place.textContent = "Loading…";
    try {
      await ttsweb.loadPart(place, url || place.dataset.part || details.dataset.url);
    } catch (error) {
      place.textContent = `The segments could not be loaded: ${error.message}`;
    }
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

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-play]");
    if (button) play(button);
    const link = event.target.closest("[data-segments] a[href^='?']");
    if (!link) return;
    event.preventDefault();
    const details = link.closest("details");
    load(details, details.dataset.url + link.getAttribute("href"));
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
