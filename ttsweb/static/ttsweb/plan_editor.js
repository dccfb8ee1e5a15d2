/* Edit the plan of a book: each change is sent to the API with the number of the plan it is for. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  // The others change which chapters there are, or their order: each is sent alone.
  const SIMPLE = ["include", "exclude", "rename", "voice", "language"];

  class Editor {
    constructor(root) {
      this.root = root;
      this.url = root.dataset.url;
      this.isOpen = Boolean(root.dataset.editable);
      this.voices = JSON.parse(document.getElementById("tts-voices").textContent);
      this.reasons = JSON.parse(document.getElementById("tts-reasons").textContent);
      this.list = root.querySelector("[data-chapters]");
      this.rows = new Map();
      this.queue = [];
      this.plan = null;
    }

    say(text, isBad = false) {
      const state = this.root.querySelector("[data-state]");
      state.textContent = text;
      state.classList.toggle("tts-bad-box", isBad);
    }

    async load() {
      try {
        this.show(await ttsweb.ask(this.url));
        this.say(this.isOpen ? "Every change is saved at once." : "You can read this plan, but not change it.");
      } catch (error) {
        this.say(error.message, true);
      }
    }

    /* Queue an edit; it may be a function that makes it of the plan as it is by then. */
    edit(edit, said) {
      this.queue.push({ edit, said });
      this.flush();
    }

    /* Queue another change of the plan, such as its casting; `make` makes it of the plan by then. */
    change(make, said) {
      this.queue.push({ change: make, said });
      this.flush();
    }

    move(id, by) {
      this.reorder((ids) => {
        const at = ids.indexOf(id);
        const to = at + by;
        if (at < 0 || to < 0 || to >= ids.length) return null;
        ids.splice(to, 0, ids.splice(at, 1)[0]);
        return ids;
      }, `Moved ${by < 0 ? "up" : "down"}`);
    }

    reorder(change, said) {
      this.edit(() => {
        const ids = change(this.plan.chapters.map((one) => one.id));
        return ids && { edit: "reorder", chapters: ids };
      }, said);
    }

    merge(id) {
      this.edit(() => {
        const at = this.plan.chapters.findIndex((one) => one.id === id);
        if (at < 1) return null;
        this.focusNext = [this.plan.chapters[at - 1].id, "title"];
        return { edit: "merge", chapters: [this.plan.chapters[at - 1].id, id] };
      }, "Merged");
    }

    async flush() {
      if (this.isBusy || !this.queue.length) return;
      const taken = [this.queue.shift()];
      if (taken[0].change) {
        const change = taken[0].change();
        if (change) await this.send(change, taken[0].said);
        this.flush();
        return;
      }
      const isSimple = ({ edit }) => edit && typeof edit !== "function" && SIMPLE.includes(edit.edit);
      while (isSimple(taken[0]) && this.queue.length && isSimple(this.queue[0])) taken.push(this.queue.shift());
      const edits = taken.map(({ edit }) => (typeof edit === "function" ? edit() : edit)).filter(Boolean);
      if (edits.length) await this.send({ edits }, taken.at(-1).said);
      this.flush();
    }

    async send(change, said) {
      this.isBusy = true;
      this.say("Saving…");
      try {
        this.show(await ttsweb.ask(this.url, { method: "PATCH", body: { ...change, plan_number: this.plan.plan_number } }));
        this.say(`Saved. ${said}`);
      } catch (error) {
        this.queue = [];
        this.rows.clear(); // what was not saved is shown no longer
        this.say(error.message, true);
        if (error.code === "plan_changed") await this.reload(error.message);
        else this.show(this.plan);
      }
      this.isBusy = false;
    }

    async reload(message) {
      try {
        this.show(await ttsweb.ask(this.url));
      } catch {
        // The message that is there says what went wrong first.
      }
      this.say(`${message} The plan is shown as it is now.`, true);
    }

    show(plan) {
      const key = this.focused();
      const before = this.plan ? new Set(this.plan.chapters.map((one) => one.id)) : null;
      this.plan = plan;
      const total = plan.chapters.length;
      const kept = new Map();
      for (const chapter of plan.chapters) {
        const shown = JSON.stringify([chapter, total === chapter.index + 1]);
        const old = this.rows.get(chapter.id);
        const row = old && old.shown === shown ? old : { shown, element: ttsweb.planRow(chapter, this, total) };
        // The texts of a chapter stay open while they are switched on and off.
        const isUnfolded = old && row !== old && old.element.querySelector("[data-blocks]:not([hidden])");
        if (isUnfolded) row.element.querySelector('[data-key="blocks"]').click();
        kept.set(chapter.id, row);
      }
      this.rows = kept;
      this.place([...kept.values()].map((row) => row.element));
      const added = before ? plan.chapters.find((one) => !before.has(one.id)) : null;
      this.focus(this.focusNext || (added ? [added.id, "title"] : key));
      this.focusNext = null;
      ttsweb.showPlanFacts(this);
      if (ttsweb.showPlanCast) ttsweb.showPlanCast(this);
    }

    /* Put the rows in order; those that stay where they are keep the focus and what is being typed. */
    place(elements) {
      elements.forEach((element, at) => {
        if (this.list.children[at] !== element) this.list.insertBefore(element, this.list.children[at] || null);
      });
      while (this.list.children.length > elements.length) this.list.lastElementChild.remove();
    }

    focused() {
      const active = document.activeElement;
      const row = active && active.closest ? active.closest("[data-chapter]") : null;
      return row && active.dataset.key ? [row.dataset.chapter, active.dataset.key, active] : null;
    }

    focus(key) {
      if (!key) return;
      const row = this.rows.get(key[0])?.element;
      let found = row?.querySelector(`[data-key="${key[1]}"]`);
      if (found?.disabled) found = row.querySelector('[data-key="up"]:not(:disabled), [data-key="down"]:not(:disabled), [data-key="title"]');
      if (!found) return;
      // What was being written in a field that was made anew goes on there.
      const typed = key[2] && key[2] !== found && key[2].matches("input:not([type=checkbox])") && key[2].value !== key[2].defaultValue;
      if (typed && key[2].value !== found.value) found.value = key[2].value;
      found.focus();
      found.scrollIntoView({ block: "nearest" });
    }
  }

  /* Drag a chapter by its handle; the line shows where it would go. */
  const dragRows = (editor) => {
    const { list } = editor;
    let dragged = null;
    const clear = () => list.querySelectorAll(".tts-plan-over").forEach((row) => row.classList.remove("tts-plan-over"));
    list.addEventListener("dragstart", (event) => {
      dragged = event.target.closest?.("[data-chapter]");
      if (!dragged || !editor.isOpen) return;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", dragged.dataset.chapter);
    });
    list.addEventListener("dragover", (event) => {
      const over = event.target.closest?.("[data-chapter]");
      if (!dragged || !over) return;
      event.preventDefault();
      clear();
      over.classList.add("tts-plan-over");
    });
    list.addEventListener("drop", (event) => {
      const over = event.target.closest?.("[data-chapter]");
      clear();
      if (!dragged || !over || over === dragged) return;
      event.preventDefault();
      const [moved, before] = [dragged.dataset.chapter, over.dataset.chapter];
      editor.reorder((ids) => {
        const isDown = ids.indexOf(moved) < ids.indexOf(before);
        const rest = ids.filter((id) => id !== moved);
        const at = rest.indexOf(before);
        if (at < 0 || !ids.includes(moved)) return null;
        rest.splice(isDown ? at + 1 : at, 0, moved);
        return rest;
      }, "Moved");
    });
    list.addEventListener("dragend", () => {
      dragged = null;
      clear();
    });
  };

  const startBook = async (editor) => {
    const { root } = editor;
    const state = root.querySelector("[data-start-state]");
    const voice = root.querySelector("[data-start-voice]").value;
    state.textContent = "Starting…";
    try {
      await ttsweb.ask(root.dataset.start, { method: "POST", body: voice ? { voice } : {} });
      window.location.assign(root.dataset.page);
    } catch (error) {
      state.textContent = error.message;
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.querySelector("[data-plan-editor]");
    if (!root) return;
    const editor = new Editor(root);
    dragRows(editor);
    root.querySelector("[data-undo]")?.addEventListener("click", () => {
      const { edits } = editor.plan;
      if (!edits.length) return editor.say("There is no change to undo.");
      editor.change(() => ({ reset: true, edits: editor.plan.edits.slice(0, -1) }), "The last change was undone.");
    });
    root.querySelector("[data-reset]")?.addEventListener("click", () => {
      if (!editor.plan.edits.length) return editor.say("There is no change to undo.");
      if (!window.confirm(`Undo ${ttsweb.refusals(editor.plan.edits.length, "change")}?`)) return;
      editor.change(() => ({ reset: true, edits: [] }), "All changes were undone.");
    });
    root.querySelector("[data-start-book]")?.addEventListener("click", () => startBook(editor));
    editor.load();
  });
})();
