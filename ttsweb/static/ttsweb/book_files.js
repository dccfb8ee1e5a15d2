/* Ask for further files of a book, follow them while they are made, and let them go. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  const COLOURS = { claimed: "encoding", done: "ready", failed: "failed" };
  const WORDS = { queued: "waiting", claimed: "being made", done: "ready", failed: "failed" };

  const bytes = (number) => {
    if (number < 1e6) return `${Math.max(1, Math.round(number / 1e3))} kB`;
    return number < 1e9 ? `${(number / 1e6).toFixed(1)} MB` : `${(number / 1e9).toFixed(2)} GB`;
  };

  const about = (file) => {
    const words = [];
    for (const [name, value] of Object.entries(file.options || {})) {
      if (value !== null && value !== "") words.push(`${name.replaceAll("_", " ")} ${value}`);
    }
    if (file.is_partial) words.push("complete chapters only");
    if (file.status === "done" && file.is_current === false) words.push("out of date: make the file again");
    return words.join(" · ");
  };

  const row = (file, box) => {
    const label = box.labels[file.kind] || file.kind;
    const url = `${box.dataset.url}/${file.id}`;
    const does = make("span", { class: "tts-does" });
    if (file.status === "done") {
      const link = make("a", { href: file.content_url || `${url}/content`, class: "tts-link", "aria-label": `Download ${label}` }, "Download");
      link.setAttribute("download", "");
      does.append(link);
      if (file.plot_url) does.append(make("a", { href: file.plot_url, class: "tts-link", "aria-label": `Levels of ${label}` }, "Levels"));
    }
    if (box.dataset.mayControl) {
      does.append(make("button", { type: "button", class: "tts-button", "data-delete-file": url, "aria-label": `Delete ${label}` }, "Delete"));
    }
    const size = file.size_bytes ? bytes(file.size_bytes) : "–";
    const length = file.duration_seconds ? ttsweb.hours(file.duration_seconds) : "–";
    const badge = make("span", { class: `tts-badge tts-${COLOURS[file.status] || "pending"}` }, WORDS[file.status] || file.status);
    const why = file.error_message ? make("p", { class: "tts-remark tts-bad" }, file.error_message) : null;
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, label, make("small", { class: "tts-block" }, about(file))),
      make("td", { "data-label": "State" }, badge, why),
      make("td", { class: "tts-nowrap", "data-label": "Size" }, size),
      make("td", { class: "tts-nowrap", "data-label": "Length" }, length),
      make("td", {}, does),
    );
  };

  const show = async (box) => {
    const body = box.querySelector("tbody");
    let files = [];
    try {
      files = (await ttsweb.ask(box.dataset.url)).results;
    } catch (error) {
      box.querySelector("[data-state]").textContent = error.message;
      return; // the page's next round asks again
    }
    const shown = JSON.stringify(files);
    if (box.shown !== shown) {
      box.shown = shown;
      body.replaceChildren(...files.map((file) => row(file, box)));
      box.querySelector("[data-table]").hidden = !files.length;
    }
    // The page is looked at again soon, and this table with it, while a file is being made.
    box.toggleAttribute("data-open", files.some((file) => ["queued", "claimed"].includes(file.status)));
  };

  /* Show the options that the chosen kind takes, and only those. */
  const fit = (form) => {
    const chosen = form.elements.kind.selectedOptions[0];
    const takes = (chosen.dataset.takes || "").split(" ");
    for (const field of form.querySelectorAll("[data-option]")) {
      const isTaken = takes.includes(field.dataset.option);
      field.hidden = !isTaken;
      field.querySelector("input, select").disabled = !isTaken;
    }
    const format = form.elements.format;
    const formats = (chosen.dataset.formats || "").split(" ").filter(Boolean);
    format.replaceChildren(new Option("default", ""), ...formats.map((name) => new Option(name, name)));
  };

  const request = async (form, box) => {
    const state = box.querySelector("[data-state]");
    const body = { kind: form.elements.kind.value };
    for (const name of ["format", "preset"]) {
      const field = form.elements[name];
      if (!field.disabled && field.value) body[name] = field.value;
    }
    for (const name of ["loudness", "bit_rate", "minutes", "chapter"]) {
      const field = form.elements[name];
      if (!field.disabled && field.value !== "") body[name] = Number(field.value) - (name === "chapter" ? 1 : 0);
    }
    if (form.elements.partial.checked) body.partial = true;
    state.textContent = "Sending…";
    try {
      await ttsweb.ask(box.dataset.url, { method: "POST", body });
      state.textContent = "The file is being made; the table shows when it is ready.";
      await show(box);
      ttsweb.refresh();
    } catch (error) {
      state.textContent = error.message;
    }
  };

  const begin = () => {
    const box = document.querySelector("[data-book-files]");
    if (box?.labels) show(box);
    if (!box || box.labels) return;
    box.labels = {};
    const form = box.querySelector("form");
    for (const option of box.querySelectorAll("[data-label]")) box.labels[option.dataset.label] = option.textContent.trim();
    if (form) {
      fit(form);
      form.elements.kind.addEventListener("change", () => fit(form));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        request(form, box);
      });
    }
    box.addEventListener("click", async (event) => {
      const button = event.target.closest("[data-delete-file]");
      if (!button) return;
      button.disabled = true;
      try {
        await ttsweb.ask(button.dataset.deleteFile, { method: "DELETE" });
        box.querySelector("[data-state]").textContent = "The file was deleted.";
      } catch (error) {
        box.querySelector("[data-state]").textContent = error.message;
      }
      await show(box);
    });
    show(box);
  };

  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("ttsweb:fresh", begin);
})();
