/* Keep the progress of all visible books moving: one question for all of them, while one is open. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const EVERY_MS = 2000;
  const OPEN = ["importing", "queued", "running"];
  const COLOURS = { running: "encoding", paused: "encoding", partial: "encoding", succeeded: "ready", failed: "failed" };

  const describe = (book) => {
    const plan = book.plan || {};
    if (book.status === "importing") return "being read";
    if (!book.progress) return plan.chapters ? `${plan.included} of ${plan.chapters} chapters · about ${ttsweb.hours(plan.expected_seconds)}` : "";
    const told = book.progress;
    const words = [`${told.chapters_done} of ${told.chapters_total} chapters`];
    if (["succeeded", "partial"].includes(book.status)) return [...words, ttsweb.hours(told.audio_seconds)].join(" · ");
    words.push(`${ttsweb.hours(told.audio_seconds)} of about ${ttsweb.hours(plan.expected_seconds || 0)}`);
    if (told.eta_seconds != null) words.push(`about ${ttsweb.hours(told.eta_seconds)} left`);
    return words.join(" · ");
  };

  const showFile = (place, book) => {
    if (!book.audio_url || place.querySelector("a")) return;
    const link = ttsweb.make("a", { href: book.audio_url, class: "tts-link", "aria-label": `Download ${book.title || book.filename}` }, "Download");
    link.setAttribute("download", "");
    place.replaceChildren(link);
  };

  const show = (book) => {
    for (const cell of document.querySelectorAll(`[data-book="${book.id}"]`)) {
      const was = cell.dataset.status;
      cell.dataset.status = book.status;
      const bar = cell.querySelector("progress");
      const share = book.progress ? book.progress.share : 0;
      if (bar) {
        const percent = Math.round(100 * share);
        bar.value = share;
        bar.title = `${percent} %`;
        bar.setAttribute("aria-label", `${percent} percent done`);
      }
      const words = cell.querySelector("[data-words]");
      if (words) words.textContent = describe(book);
      const badge = cell.querySelector("[data-badge]");
      if (badge) {
        badge.textContent = book.status;
        badge.className = `tts-badge tts-${COLOURS[book.status] || "pending"}`;
      }
      const title = cell.querySelector("[data-title]");
      if (title && book.title) title.textContent = book.title;
      const file = cell.querySelector("[data-file]");
      if (file) showFile(file, book);
      // A page of one book has more to say of another state: buttons, chapters, the file.
      if ("whole" in cell.dataset && was !== book.status) window.location.reload();
    }
  };

  const poll = async () => {
    const cells = [...document.querySelectorAll("[data-book]")];
    const ids = [...new Set(cells.filter((cell) => OPEN.includes(cell.dataset.status)).map((cell) => cell.dataset.book))];
    if (ids.length && document.visibilityState === "visible") {
      try {
        (await ttsweb.ask(`/api/v1/books?limit=100&ids=${ids.slice(0, 100).join(",")}`)).results.forEach(show);
      } catch {
        // The server is away for a moment: the next round asks again.
      }
    }
    if (cells.length) setTimeout(poll, EVERY_MS);
  };

  document.addEventListener("DOMContentLoaded", () => setTimeout(poll, EVERY_MS / 4));
})();
