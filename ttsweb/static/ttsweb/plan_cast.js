/* Choose who speaks what beside the narrator: dialogue, characters, languages; and the credits. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  const percent = (share) => `${share > 0 && share < 0.01 ? "under 1" : Math.round(100 * share)} %`;

  const voiceSelect = (editor, value, label, empty, save) => {
    const select = make("select", { class: "tts-input", "aria-label": label, disabled: !editor.isOpen }, new Option(empty, ""));
    for (const voice of editor.voices) select.append(new Option(voice.name, voice.id));
    if (value) {
      const known = editor.voices.find((one) => one.id === value || one.name.toLowerCase() === value.toLowerCase());
      if (known) select.value = known.id;
      else select.append(new Option(value, value, true, true));
    }
    select.addEventListener("change", () => save(select.value));
    return select;
  };

  /* Save the casting with something changed in it; what is empty is said no more. */
  const cast = (editor, change, said) => {
    editor.change(() => {
      const casting = structuredClone(editor.plan.casting || {});
      change(casting);
      for (const name of ["characters", "languages"]) {
        if (casting[name] && !Object.keys(casting[name]).length) delete casting[name];
      }
      return { casting: Object.keys(casting).length ? casting : null };
    }, said);
  };

  const setIn = (editor, name, key) => (voice) =>
    cast(editor, (casting) => {
      casting[name] = casting[name] || {};
      // A name that was given in another spelling is the same one.
      for (const known of Object.keys(casting[name])) if (known.toLowerCase() === key.toLowerCase()) delete casting[name][known];
      if (voice) casting[name][key] = voice;
    }, `${key}: ${voice ? "a voice of its own" : "no voice of its own"}`);

  const dialogue = (editor) => {
    const { plan } = editor;
    const casting = plan.casting || {};
    const isOn = casting.dialogue === "detect";
    const box = make("input", { type: "checkbox", disabled: !editor.isOpen });
    box.checked = isOn;
    // It is found, and spoken by somebody, or it is not looked for.
    const voice = voiceSelect(editor, casting.dialogue_voice, "Voice of the dialogue", "choose a voice", (chosen) =>
      cast(editor, (now) => {
        if (chosen) Object.assign(now, { dialogue: "detect", dialogue_voice: chosen });
        else {
          delete now.dialogue;
          delete now.dialogue_voice;
        }
      }, chosen ? "Dialogue has a voice of its own" : "The narrator speaks the dialogue"));
    box.addEventListener("change", () => {
      if (!box.checked) {
        cast(editor, (now) => {
          delete now.dialogue;
          delete now.dialogue_voice;
        }, "The narrator speaks the dialogue");
      } else if (!voice.value) {
        editor.say("Choose the voice of the dialogue.");
        voice.focus();
      }
    });
    const found = plan.dialogue ? make("span", { class: "tts-quiet" }, `${percent(plan.dialogue.share)} of the spoken text`) : null;
    return make("p", { class: "tts-row-tight" }, make("label", { class: "tts-row-tight" }, box, "Detect dialogue and speak it with"), voice, found);
  };

  const table = (title, heads, rows) =>
    make(
      "div",
      {},
      make("h3", { class: "tts-book-title" }, title),
      make(
        "div",
        { class: "tts-scroll", tabIndex: 0, role: "region", "aria-label": title },
        make("table", { class: "tts-table" }, make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows)),
      ),
    );

  const characters = (editor) => {
    const found = editor.plan.characters || [];
    if (!found.length) return null;
    const rows = found.map((one) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, one.name, one.example ? make("small", { class: "tts-block tts-quiet tts-narrow" }, one.example) : null),
        make("td", {}, one.speeches.toLocaleString("en")),
        make("td", {}, voiceSelect(editor, one.voice, `Voice of ${one.name}`, "the narrator's", setIn(editor, "characters", one.name))),
      ));
    return table("Characters", ["Name", "Speeches", "Voice"], rows);
  };

  const languages = (editor) => {
    const found = (editor.plan.languages || []).filter((one) => one.language);
    if (found.length < 2) return null;
    const rows = found.map((one) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, one.language),
        make("td", {}, percent(one.share)),
        make("td", {}, voiceSelect(editor, one.voice, `Voice for text in ${one.language}`, "the narrator's", setIn(editor, "languages", one.language))),
      ));
    return table("Languages", ["Language", "Share", "Voice"], rows);
  };

  const credits = (editor, name, label) => {
    const text = make("textarea", { class: "tts-input", rows: 2, disabled: !editor.isOpen });
    text.value = text.defaultValue = editor.plan[name] || "";
    text.addEventListener("change", () => editor.change(() => ({ [name]: text.value.trim() || null }), `${label} ${text.value.trim() ? "set" : "left out"}`));
    const spoken = (editor.plan.credits || {})[name];
    return make("label", {}, label, text, spoken ? make("small", { class: "tts-quiet" }, `Spoken: ${spoken}`) : null);
  };

  ttsweb.showPlanCast = (editor) => {
    const place = editor.root.querySelector("[data-cast]");
    const shown = JSON.stringify(["casting", "characters", "languages", "dialogue", "opening_credits", "closing_credits", "credits"].map((name) => editor.plan[name]));
    if (place.shown === shown) return;
    const label = document.activeElement?.closest?.("[data-cast]") && document.activeElement.getAttribute("aria-label");
    const wasOpen = Boolean(place.querySelector("details[open]"));
    place.shown = shown;
    place.hidden = false;
    const isCast = Object.keys(editor.plan.casting || {}).length || editor.plan.opening_credits || editor.plan.closing_credits;
    const details = make(
      "details",
      {},
      make("summary", {}, `Voices and credits${(editor.plan.characters || []).length ? `, ${ttsweb.refusals(editor.plan.characters.length, "character")}` : ""}`),
      dialogue(editor),
      characters(editor),
      languages(editor),
      make("p", { class: "tts-quiet" }, "Credits can contain {title}, {subtitle}, {authors}, {narrators}, {publisher} and {year}; the book's values replace them."),
      make("div", { class: "tts-fields" }, credits(editor, "opening_credits", "Opening credits"), credits(editor, "closing_credits", "Closing credits")),
    );
    details.open = wasOpen || Boolean(isCast);
    place.replaceChildren(details);
    if (label) place.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
  };
})();
