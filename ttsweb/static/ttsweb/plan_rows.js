/* Make the rows of the plan's editor: one for each chapter, and the blocks where it can be split. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  const number = (value) => value.toLocaleString("en");

  const voiceSelect = (chapter, editor) => {
    const select = make("select", { class: "tts-input", "data-key": "voice", "aria-label": `Voice of ${chapter.title}`, disabled: !editor.isOpen });
    select.append(new Option("the book's voice", ""));
    if (chapter.voice) {
      const known = editor.voices.find((one) => one.id === chapter.voice || one.name.toLowerCase() === chapter.voice.toLowerCase());
      select.append(new Option(known ? known.name : chapter.voice, chapter.voice, true, true));
    }
    // A book may have thousands of chapters: the other voices come when they are looked for.
    const fill = () => {
      if (select.dataset.filled) return;
      select.dataset.filled = "1";
      const shown = [...select.options].map((option) => option.textContent);
      for (const voice of editor.voices) if (!shown.includes(voice.name)) select.append(new Option(voice.name, voice.id));
    };
    for (const event of ["focus", "pointerdown", "mousedown"]) select.addEventListener(event, fill);
    select.addEventListener("change", () => editor.edit({ edit: "voice", chapter: chapter.id, voice: select.value }, `${chapter.title}: another voice`));
    return select;
  };

  const textInput = (chapter, editor, key, label, name) => {
    const input = make("input", { class: "tts-input", "data-key": key, "aria-label": label, maxLength: key === "title" ? 200 : 35, disabled: !editor.isOpen, placeholder: name === "language" ? "en, fr…" : "" });
    input.value = input.defaultValue = chapter[key];
    const save = () => {
      if (input.value.trim() === input.defaultValue.trim()) return;
      if (!input.value.trim()) {
        input.value = input.defaultValue;
        editor.say("A title cannot be empty; nothing was changed.");
        return;
      }
      editor.edit({ edit: name, chapter: chapter.id, [key]: input.value.trim() }, `Chapter ${chapter.index + 1}: ${input.value.trim()}`);
    };
    input.addEventListener("change", save);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") input.value = input.defaultValue;
    });
    return input;
  };

  const button = (key, text, label, onclick, disabled) =>
    make("button", { type: "button", class: "tts-button tts-small", "data-key": key, "aria-label": label, onclick, disabled }, text);

  const buttons = (chapter, editor, total) => {
    const at = chapter.index;
    const open = editor.isOpen;
    const blocks = button("blocks", open ? "Split…" : "Texts", `Show the texts of ${chapter.title}${open ? ", to split it" : ""}`, () => toggleBlocks(chapter, editor, blocks), false);
    blocks.setAttribute("aria-expanded", "false");
    if (!open) return make("span", { class: "tts-plan-do" }, blocks);
    return make(
      "span",
      { class: "tts-plan-do" },
      button("up", "↑", `Move ${chapter.title} up`, () => editor.move(chapter.id, -1), at === 0),
      button("down", "↓", `Move ${chapter.title} down`, () => editor.move(chapter.id, 1), at === total - 1),
      button("merge", "Merge up", `Merge ${chapter.title} with the chapter before it`, () => editor.merge(chapter.id), at === 0),
      blocks,
    );
  };

  const about = (chapter, editor) => {
    const words = [ttsweb.hours(chapter.seconds), ttsweb.refusals(chapter.characters, "character"), ttsweb.refusals(chapter.blocks, "block")];
    if (!chapter.included) words.splice(0, 2, `${ttsweb.refusals(chapter.source_chars, "character")} left out`);
    if (chapter.parts.length) words.push(chapter.parts.join(" › "));
    if (chapter.speakers.length) words.push(`speakers: ${chapter.speakers.join(", ")}`);
    const why = chapter.reason ? make("span", { class: "tts-remark" }, editor.reasons[chapter.reason] || chapter.reason) : null;
    return make("span", { class: "tts-plan-about tts-quiet" }, words.join(" · "), why ? " " : null, why);
  };

  ttsweb.planRow = (chapter, editor, total) => {
    const box = make("input", { type: "checkbox", "data-key": "include", "aria-label": `Speak ${chapter.title}`, disabled: !editor.isOpen });
    box.checked = box.defaultChecked = chapter.included;
    box.addEventListener("change", () => editor.edit({ edit: box.checked ? "include" : "exclude", chapter: chapter.id }, `${chapter.title}: ${box.checked ? "spoken" : "left out"}`));
    const handle = make("span", { class: "tts-plan-drag", "aria-hidden": "true", title: "Drag to move" }, "⋮⋮");
    if (editor.isOpen) handle.draggable = true;
    const row = make(
      "li",
      { class: `tts-plan-row${chapter.included ? "" : " tts-plan-out"}`, "data-chapter": chapter.id },
      make("span", { class: "tts-plan-head" }, handle, make("span", { class: "tts-plan-number" }, String(chapter.index + 1)), box),
      textInput(chapter, editor, "title", `Title of chapter ${chapter.index + 1}`, "rename"),
      voiceSelect(chapter, editor),
      textInput(chapter, editor, "language", `Language of ${chapter.title}`, "language"),
      buttons(chapter, editor, total),
      about(chapter, editor),
      make("div", { class: "tts-plan-blocks", "data-blocks": "", hidden: true }),
    );
    return row;
  };

  const toggleBlocks = async (chapter, editor, opener) => {
    const place = opener.closest("li").querySelector("[data-blocks]");
    place.hidden = !place.hidden;
    opener.setAttribute("aria-expanded", String(!place.hidden));
    if (place.hidden) return;
    const list = make("ol", { class: "tts-blocks" });
    place.replaceChildren(list);
    await moreBlocks(chapter, editor, place, list);
  };

  const moreBlocks = async (chapter, editor, place, list) => {
    const more = place.querySelector("[data-more]");
    if (more) more.remove();
    let found;
    try {
      found = await ttsweb.ask(`${editor.url}/chapters/${encodeURIComponent(chapter.id)}?offset=${list.children.length}&limit=200`);
    } catch (error) {
      place.append(make("p", { class: "tts-remark tts-bad" }, error.message));
      return;
    }
    for (const block of found.blocks) list.append(blockItem(block, chapter, editor));
    if (list.children.length < found.total) {
      place.append(make("button", { type: "button", class: "tts-button", "data-more": "", onclick: () => moreBlocks(chapter, editor, place, list) }, `Show more of the ${number(found.total)} blocks`));
    }
  };

  const blockItem = (block, chapter, editor) => {
    const why = block.reason ? make("small", { class: "tts-remark tts-block" }, editor.reasons[block.reason] || block.reason) : null;
    const who = block.speaker ? make("strong", {}, `${block.speaker}: `) : null;
    const split = () => {
      editor.edit({ edit: "split", chapter: chapter.id, block: block.index }, `${chapter.title}: split`);
    };
    const does = editor.isOpen && block.index > 0 ? make("button", { type: "button", class: "tts-button tts-small", "aria-label": `Begin a chapter at: ${block.text.slice(0, 60)}`, onclick: split }, "Begin a chapter here") : null;
    const box = make("input", { type: "checkbox", "aria-label": `Speak: ${(block.text || block.kind).slice(0, 60)}`, disabled: !editor.isOpen || !block.can_be_included });
    box.checked = box.defaultChecked = !block.reason;
    box.addEventListener("change", () => editor.edit({ edit: box.checked ? "include" : "exclude", chapter: chapter.id, block: block.index }, `${chapter.title}: a text ${box.checked ? "spoken" : "left out"}`));
    return make("li", { class: block.kind === "heading" ? "tts-block-heading" : "" }, make("label", { class: "tts-part" }, box, make("span", {}, who, block.text || `(${block.kind})`, why)), does);
  };
})();
