/* Send an exported voice to the API, and go to the page of the voice that comes of it. */
"use strict";

(() => {
  const send = async (form) => {
    const state = form.querySelector("[data-state]");
    const button = form.querySelector("button");
    const file = form.elements.archive.files[0];
    if (!file) {
      state.textContent = "Choose a file that was exported from a voice.";
      return;
    }
    const body = new FormData();
    body.append("archive", file);
    if (form.elements.name.value.trim()) body.append("name", form.elements.name.value.trim());
    button.disabled = true;
    state.textContent = `Sending ${file.name}…`;
    try {
      const found = await ttsweb.ask(form.dataset.url, { method: "POST", body });
      window.location.assign(form.dataset.page.replace("00000000-0000-0000-0000-000000000000", found.id));
    } catch (error) {
      state.textContent = error.message;
      button.disabled = false;
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const form of document.querySelectorAll("form[data-import-voice]")) {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        send(form);
      });
    }
  });
})();
