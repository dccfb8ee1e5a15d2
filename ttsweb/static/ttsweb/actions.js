/* Do what a button of a page says, through the API; ask before what cannot be taken back. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});

  /* Ask a question whose two answers say what each of them does; return whether it is the first. */
  ttsweb.confirm = (question, yes, no) =>
    new Promise((resolve) => {
      const { make } = ttsweb;
      const dialog = make(
        "dialog",
        { class: "tts-dialog", "aria-labelledby": "tts-question" },
        make("p", { id: "tts-question" }, question),
        make(
          "p",
          { class: "tts-row-tight" },
          make("button", { type: "button", class: "tts-button tts-primary", onclick: () => dialog.close("yes") }, yes),
          make("button", { type: "button", class: "tts-button", autofocus: true, onclick: () => dialog.close("no") }, no),
        ),
      );
      dialog.addEventListener("close", () => {
        dialog.remove();
        resolve(dialog.returnValue === "yes");
      });
      document.body.append(dialog);
      dialog.showModal();
    });

  const bodyOf = (button) => {
    if (button.dataset.body) return JSON.parse(button.dataset.body);
    const voice = document.querySelector("[data-start-voice]");
    return button.dataset.action === "start" && voice?.value ? { voice: voice.value } : {};
  };

  const act = async (button) => {
    const { confirm, yes, no, url } = button.dataset;
    if (confirm && !(await ttsweb.confirm(confirm, yes, no))) return;
    const state = button.closest("[data-actions]").querySelector("[data-state]");
    button.disabled = true;
    state.textContent = "Sending…";
    try {
      await ttsweb.ask(url, { method: "POST", body: bodyOf(button) });
      state.textContent = button.dataset.done || "";
      if ("reload" in button.dataset) window.location.reload();
      await ttsweb.refresh();
    } catch (error) {
      state.textContent = error.message;
    }
    button.disabled = false;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action][data-url]");
    if (button) act(button);
  });
})();
