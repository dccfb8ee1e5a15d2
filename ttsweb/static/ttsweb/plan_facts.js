/* Show what a plan comes to: hours, characters, warnings, and what is not spoken and why. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const { make } = ttsweb;
  const MOST_TEXTS = 200;
  const number = (value) => value.toLocaleString("en");

  const tile = (title, big, small) =>
    make("div", { class: "tts-tile" }, make("h2", {}, title), make("p", { class: "tts-number" }, big), make("p", { class: "tts-quiet" }, small));

  const totals = (plan) => {
    const { totals: sums, completeness } = plan;
    const skipped = Object.values(completeness.skipped).reduce((left, right) => left + right, 0);
    const tiles = [
      tile("Chapters", number(sums.chapters), `of ${number(plan.chapters.length)}`),
      tile("Audio", ttsweb.hours(sums.seconds), ttsweb.refusals(sums.characters, "character")),
      tile("Spoken", number(completeness.spoken), `of ${number(completeness.source_chars)} characters; ${number(skipped)} are skipped`),
    ];
    if (plan.expected_finish) {
      const at = new Date(plan.expected_finish);
      tiles.push(tile("Finished, if started now", at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZoneName: "short" }), `on ${at.toLocaleDateString("en-GB", { dateStyle: "medium" })}, estimated from the workers' recent speed`));
    }
    return tiles;
  };

  const warnings = (place, plan) => {
    place.hidden = !plan.warnings.length;
    const list = make("ul", { class: "tts-list" }, ...plan.warnings.map((text) => make("li", {}, text)));
    const title = `${number(plan.warnings.length)} warning${plan.warnings.length === 1 ? "" : "s"}`;
    place.replaceChildren(make("details", {}, make("summary", {}, title), list));
  };

  const titleOf = (plan, id) => plan.chapters.find((one) => one.id === id)?.title || "";

  /* A switch that is on where a part is spoken; it saves the edit that turns it over. */
  const partSwitch = (editor, label, isOn, edit, canBe = true) => {
    const box = make("input", { type: "checkbox", "aria-label": `Speak ${label}`, disabled: !editor.isOpen || !canBe });
    box.checked = box.defaultChecked = isOn;
    box.addEventListener("change", () => editor.edit({ edit: box.checked ? "include" : "exclude", ...edit }, `${label}: ${box.checked ? "spoken" : "left out"}`));
    return box;
  };

  const part = (box, ...words) => make("li", {}, make("label", { class: "tts-part" }, box, make("span", {}, ...words)));

  const group = (editor, reason, chars) => {
    const { plan } = editor;
    const texts = plan.skipped.filter((one) => one.reason === reason);
    const chapters = plan.chapters.filter((one) => !one.included && (one.reason || "excluded") === reason);
    const items = [
      ...chapters.map((one) =>
        part(
          partSwitch(editor, one.title, false, { chapter: one.id }),
          make("strong", {}, one.title),
          ` – the whole chapter, ${ttsweb.refusals(one.source_chars, "character")}`,
          one.beginning && one.beginning !== one.title ? make("small", { class: "tts-block tts-quiet" }, one.beginning) : null,
        )),
      ...texts.slice(0, MOST_TEXTS).map((one) =>
        part(
          partSwitch(editor, one.text || one.kind, one.included, { chapter: one.chapter, block: one.block }, one.can_be_included),
          one.text || `(${one.kind})`,
          make("small", { class: "tts-block tts-quiet" }, `${one.kind === "furniture" ? "" : `${one.kind.replaceAll("_", " ")} `}in ${titleOf(plan, one.chapter)}${one.included ? "; spoken, as somebody included it" : ""}`),
        )),
    ];
    if (texts.length > MOST_TEXTS) items.push(make("li", {}, `and ${number(texts.length - MOST_TEXTS)} more`));
    const name = reason.replaceAll("_", " ");
    const summary = make("summary", {}, `${name}${chars ? `: ${number(chars)} character${chars === 1 ? "" : "s"}` : ""}`);
    const can = chapters.length || texts.some((one) => one.can_be_included);
    const isOn = !chapters.length && !texts.some((one) => one.can_be_included && !one.included);
    const all = editor.isOpen && can && reason !== "excluded"
      ? make("label", { class: "tts-part" }, partSwitch(editor, `all of ${name}`, isOn, { reason }), "Speak all of it")
      : null;
    return make("details", {}, summary, make("p", { class: "tts-quiet" }, editor.reasons[reason] || ""), all, make("ul", { class: "tts-list tts-parts" }, ...items));
  };

  const missing = (plan) => {
    const found = plan.completeness.missing;
    if (!found.length) return null;
    const rows = found.map((one) => make("li", {}, make("strong", {}, one.path), ` – ${one.why}`, one.text ? make("small", { class: "tts-block tts-quiet" }, one.text) : null));
    return make("div", { class: "tts-bad-box" }, make("p", {}, "The book is not complete. These parts could not be read:"), make("ul", { class: "tts-list" }, ...rows));
  };

  ttsweb.showPlanFacts = (editor) => {
    const { plan, root } = editor;
    root.querySelector("[data-totals]").replaceChildren(...totals(plan));
    warnings(root.querySelector("[data-warnings]"), plan);
    const place = root.querySelector("[data-skipped]");
    const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.dataset.reason));
    const sums = { ...plan.completeness.skipped };
    // A reason of which everything was included stays, so that it can be left out again.
    for (const one of plan.skipped) sums[one.reason] = sums[one.reason] || 0;
    const counts = Object.entries(sums).sort((left, right) => right[1] - left[1]);
    const groups = counts.map(([reason, chars]) => {
      const found = group(editor, reason, chars);
      found.dataset.reason = reason;
      found.open = open.has(reason);
      return found;
    });
    const label = place.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    const shown = groups.length ? groups : [make("p", { class: "tts-quiet" }, "The whole book is spoken.")];
    place.replaceChildren(...[missing(plan), ...shown].filter(Boolean));
    if (label) place.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
  };
})();
