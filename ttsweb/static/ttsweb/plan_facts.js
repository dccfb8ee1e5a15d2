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
      tile("Audio", ttsweb.hours(sums.seconds), `${number(sums.characters)} characters`),
      tile("Spoken", number(completeness.spoken), `of ${number(completeness.source_chars)} letters and marks; ${number(skipped)} are skipped`),
    ];
    if (plan.expected_finish) {
      const at = new Date(plan.expected_finish);
      tiles.push(tile("Done, if started now", at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZoneName: "short" }), `on ${at.toLocaleDateString("en-GB", { dateStyle: "medium" })}, going by what the workers rendered lately`));
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

  const group = (editor, reason, chars) => {
    const { plan } = editor;
    const texts = plan.skipped.filter((one) => one.reason === reason);
    const chapters = plan.chapters.filter((one) => !one.included && (one.reason || "excluded") === reason);
    const items = [
      ...chapters.map((one) => make("li", {}, make("strong", {}, one.title), ` – the whole chapter, ${number(one.source_chars)} characters`)),
      ...texts.slice(0, MOST_TEXTS).map((one) => make("li", {}, make("span", {}, one.text || `(${one.kind})`), make("small", { class: "tts-block tts-quiet" }, `${one.kind.replaceAll("_", " ")} in ${titleOf(plan, one.chapter)}`))),
    ];
    if (texts.length > MOST_TEXTS) items.push(make("li", {}, `and ${number(texts.length - MOST_TEXTS)} more`));
    const summary = make("summary", {}, `${reason.replaceAll("_", " ")}${chars ? `: ${number(chars)} character${chars === 1 ? "" : "s"}` : ""}`);
    return make("details", {}, summary, make("p", { class: "tts-quiet" }, editor.reasons[reason] || ""), make("ul", { class: "tts-list" }, ...items));
  };

  ttsweb.showPlanFacts = (editor) => {
    const { plan, root } = editor;
    root.querySelector("[data-totals]").replaceChildren(...totals(plan));
    warnings(root.querySelector("[data-warnings]"), plan);
    const place = root.querySelector("[data-skipped]");
    const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.dataset.reason));
    const counts = Object.entries(plan.completeness.skipped).sort((left, right) => right[1] - left[1]);
    const groups = counts.map(([reason, chars]) => {
      const found = group(editor, reason, chars);
      found.dataset.reason = reason;
      found.open = open.has(reason);
      return found;
    });
    place.replaceChildren(...(groups.length ? groups : [make("p", { class: "tts-quiet" }, "All of the book is spoken.")]));
  };
})();
