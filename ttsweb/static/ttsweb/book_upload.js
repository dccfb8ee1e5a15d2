/* Send dropped books to the API one by one; each file shows its own progress and refusal. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  const NOBODY = "00000000-0000-0000-0000-000000000000";
  const OPTIONS = ["voice", "format", "preset", "priority", "notes", "tables", "alt_texts", "speaker_names", "history"];
  const NUMBERS = ["history"];
  const isManifest = (file) => /\.(csv|jsonl)$/i.test(file.name);
  const bytes = (number) => (number < 1e6 ? `${Math.max(1, Math.round(number / 1e3))} kB` : `${(number / 1e6).toFixed(1)} MB`);

  class Upload {
    constructor(form) {
      this.form = form;
      this.files = [];
      this.list = form.querySelector("[data-list]");
      this.mostBytes = Number(form.dataset.maxBytes);
    }

    say(text) {
      this.form.querySelector("[data-state]").textContent = text;
    }

    add(files) {
      for (const file of files) {
        if (this.files.some((one) => one.file.name === file.name && !one.isDone)) {
          this.say(`${file.name} is in the list already.`);
          continue;
        }
        const item = this.item(file);
        this.files.push(item);
        this.list.append(item.row);
      }
      this.fit();
    }

    item(file) {
      const bar = make("progress", { class: "tts-progress", max: 1, value: 0, "aria-label": `Upload of ${file.name}` });
      bar.hidden = true;
      const state = make("span", { role: "status" });
      const item = { file, bar, state, isDone: false };
      const drop = make("button", { type: "button", class: "tts-button tts-small", "aria-label": `Remove ${file.name}`, onclick: () => this.remove(item) }, "Remove");
      const kind = isManifest(file) ? "manifest, " : "";
      item.row = make("li", { class: "tts-upload" }, make("span", { class: "tts-upload-name" }, file.name, " ", make("small", { class: "tts-quiet" }, `${kind}${bytes(file.size)}`)), bar, state, drop);
      item.drop = drop;
      if (file.size > this.mostBytes) this.refuse(item, `The file is too large: at most ${bytes(this.mostBytes)} are allowed.`);
      else if (!file.size) this.refuse(item, "The file is empty.");
      return item;
    }

    remove(item) {
      this.files = this.files.filter((one) => one !== item);
      item.row.remove();
      this.fit();
    }

    refuse(item, text) {
      item.isRefused = true;
      item.state.className = "tts-remark tts-bad";
      item.state.textContent = text;
    }

    /* The waiting files that are books, and the manifest if there is one. */
    waiting() {
      return this.files.filter((one) => !one.isDone && !isManifest(one.file));
    }

    manifest() {
      return this.files.find((one) => isManifest(one.file) && !one.isDone);
    }

    startsAtOnce() {
      return this.form.elements.start.value === "true";
    }

    isBatch() {
      return Boolean(this.manifest()) || (this.waiting().length > 1 && this.startsAtOnce());
    }

    fit() {
      const isBatch = this.isBatch();
      this.form.querySelector("[data-batch-fields]").hidden = !isBatch;
      this.form.querySelector("[data-outcome]").textContent = this.outcome();
    }

    /* What comes of the chosen files, before they are sent. */
    outcome() {
      const number = this.waiting().length;
      if (this.manifest()) return this.startsAtOnce() ? "The manifest becomes one batch. Its books start by themselves." : "The manifest becomes one paused batch. Its books are planned, and none starts until you resume the batch on its page.";
      if (number > 1) return this.startsAtOnce() ? `The ${number} files become one batch. Its books start by themselves.` : `The ${number} files become ${number} separate books without a batch. They are planned, and you start them on their pages or in the list of books.`;
      if (number) return this.startsAtOnce() ? "The book starts as soon as it is planned." : "The book is planned. You start it on its page.";
      return "";
    }

    options() {
      const found = {};
      for (const name of OPTIONS) {
        const { value } = this.form.elements[name];
        if (value) found[name] = NUMBERS.includes(name) ? Number(value) : value;
      }
      return found;
    }

    async run() {
      const items = this.waiting();
      for (const item of [...items, this.manifest()].filter(Boolean)) {
        item.isRefused = false;
        item.state.className = "";
        item.state.textContent = "";
      }
      if (!items.length && !this.manifest()) return this.say("Drop or choose a book first.");
      if (!this.manifest() && this.form.elements.start.value && !this.form.elements.voice.value) {
        this.form.elements.voice.focus();
        return this.say("Choose a voice: books that start at once need one.");
      }
      const button = this.form.querySelector("[type=submit]");
      button.disabled = true;
      this.say("Uploading…");
      try {
        await (this.isBatch() ? this.runBatch(items) : this.runEach(items));
      } catch (error) {
        this.say(error.message);
      }
      button.disabled = false;
      this.fit();
    }

    async runEach(items) {
      const fields = this.options();
      if (this.form.elements.start.value) fields.start = "true";
      const made = [];
      for (const item of items) {
        const book = await this.send(item, fields);
        if (book) made.push(book);
      }
      if (made.length === 1 && items.length === 1) return window.location.assign(this.form.dataset.page.replace(NOBODY, made[0].id));
      this.say(`Uploaded ${made.length} of ${ttsweb.refusals(items.length, "book")}.`);
    }

    async runBatch(items) {
      const batch = await this.makeBatch(items);
      const url = `${this.form.dataset.batches}/${batch.id}`;
      // Before the first file comes: nothing of it may have begun by then.
      if (!this.startsAtOnce()) await ttsweb.ask(`${url}/pause`, { method: "POST", body: {} });
      let failed = 0;
      for (const item of items) if (!(await this.send(item, { book_batch: batch.id }))) failed += 1;
      // It ends once all its books have, unless there are files that it still waits for.
      if (!failed && !(await ttsweb.ask(url)).counts.missing) await ttsweb.ask(`${url}/close`, { method: "POST", body: {} });
      const page = this.form.dataset.batchPage.replace(NOBODY, batch.id);
      if (!failed) return window.location.assign(page);
      this.say(`${failed} of ${ttsweb.refusals(items.length, "file")} were refused; the reason is shown at each file. `);
      this.form.querySelector("[data-state]").append(make("a", { href: page, class: "tts-link" }, "Open the batch"));
    }

    async makeBatch(items) {
      const manifest = this.manifest();
      const name = this.form.elements.batch_name.value.trim();
      const sample = this.form.elements.sample.value;
      if (!manifest) {
        const entries = items.map((item) => ({ file: item.file.name }));
        const body = { entries, defaults: this.options(), sample, ...(name ? { name } : {}) };
        return ttsweb.ask(this.form.dataset.batches, { method: "POST", body });
      }
      const body = new FormData();
      body.append("manifest", manifest.file);
      body.append("sample", sample);
      body.append("defaults", JSON.stringify(this.options()));
      if (name) body.append("name", name);
      try {
        const batch = await ttsweb.ask(this.form.dataset.batches, { method: "POST", body });
        manifest.isDone = true;
        manifest.drop.remove();
        manifest.state.textContent = "accepted";
        return batch;
      } catch (error) {
        this.refuse(manifest, error.message);
        throw new Error("The manifest was refused; nothing was uploaded.");
      }
    }

    /* Send one file; fetch cannot tell how much was sent, so it is the older request. */
    send(item, fields) {
      const body = new FormData();
      for (const [name, value] of Object.entries(fields)) body.append(name, value);
      body.append("file", item.file);
      item.bar.hidden = false;
      item.state.textContent = "uploading";
      return new Promise((resolve) => {
        const request = new XMLHttpRequest();
        request.open("POST", this.form.dataset.books);
        request.setRequestHeader("X-CSRFToken", ttsweb.token());
        request.setRequestHeader("Accept", "application/json");
        request.upload.addEventListener("progress", (event) => {
          if (event.lengthComputable) item.bar.value = event.loaded / event.total;
        });
        request.addEventListener("load", () => resolve(this.ended(item, request)));
        request.addEventListener("error", () => {
          this.refuse(item, "The server cannot be reached; try again.");
          resolve(null);
        });
        request.send(body);
      });
    }

    ended(item, request) {
      let found = {};
      try {
        found = JSON.parse(request.responseText);
      } catch {
        // What has no reason is told by its status.
      }
      item.bar.hidden = true;
      if (request.status < 200 || request.status >= 300) {
        this.refuse(item, ttsweb.explain(found, request.status));
        return null;
      }
      item.isDone = true;
      item.drop.remove();
      item.state.className = "";
      item.state.replaceChildren(make("a", { href: this.form.dataset.page.replace(NOBODY, found.id), class: "tts-link", "aria-label": `Page of ${item.file.name}` }, "uploaded"));
      return found;
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const form = document.querySelector("form[data-book-upload]");
    if (!form) return;
    const upload = new Upload(form);
    const drop = form.querySelector("[data-drop]");
    const input = form.querySelector("[data-files]");
    input.addEventListener("change", () => {
      upload.add(input.files);
      input.value = "";
    });
    ttsweb.acceptDrops(drop, (files) => upload.add(files), drop.parentElement);
    form.elements.start.addEventListener("change", () => upload.fit());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      upload.run();
    });
  });
})();
