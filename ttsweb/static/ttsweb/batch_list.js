/* Keep all batches on a page moving: one question for those that are open, one for each that has ended. */
"use strict";

(() => {
  const EVERY_MS = 2000;
  const OPEN = ["queued", "running"];
  const COLOURS = { running: "encoding", partial: "encoding", succeeded: "ready", failed: "failed" };

  const inWords = (counts) =>
    Object.entries(counts).filter(([, number]) => number).map(([status, number]) => `${number} ${status}`).join(" · ") || "none";

  const describe = (batch) => {
    const ended = Object.entries(batch.counts).reduce((sum, [status, number]) => sum + (OPEN.includes(status) ? 0 : number), 0);
    const parts = [`${ended} of ${batch.items_total} items have ended`];
    if (batch.eta_seconds != null) parts.push(`about ${Math.round(batch.eta_seconds)} s left`);
    if (batch.cancel_requested && batch.status === "running") parts.push("stopping");
    return parts.join(" · ");
  };

  const show = (batch) => {
    for (const cell of document.querySelectorAll(`[data-batch="${batch.id}"]`)) {
      const was = cell.dataset.status;
      cell.dataset.status = batch.status;
      const bar = cell.querySelector("progress");
      if (bar) {
        const percent = Math.round(100 * batch.progress);
        bar.value = batch.progress;
        bar.title = `${percent} %`;
        bar.setAttribute("aria-label", `${percent} percent done`);
      }
      const badge = cell.querySelector("[data-badge]");
      if (badge) {
        badge.textContent = batch.status;
        badge.className = `tts-badge tts-${COLOURS[batch.status] || "pending"}`;
      }
      const words = cell.querySelector("[data-words]");
      if (words) words.textContent = describe(batch);
      const counts = cell.querySelector("[data-counts]");
      if (counts) counts.textContent = inWords(batch.counts);
      const zip = cell.querySelector("[data-zip]");
      if (zip && batch.results_url && !zip.querySelector("a")) {
        const link = document.createElement("a");
        link.href = batch.results_url;
        link.download = "";
        link.textContent = "Save the zip";
        zip.replaceChildren(link);
      }
      // The page of one batch shows more than is told here: items, times, what went wrong.
      if ("whole" in cell.dataset && OPEN.includes(was) && !OPEN.includes(batch.status)) window.location.reload();
    }
  };

  const read = async (path) => {
    const answer = await fetch(`/api/v1/batches${path}`, { credentials: "same-origin" });
    return answer.ok ? answer.json() : null;
  };

  const poll = async () => {
    const cells = [...document.querySelectorAll("[data-batch]")];
    const open = new Set(cells.filter((cell) => OPEN.includes(cell.dataset.status)).map((cell) => cell.dataset.batch));
    if (open.size && document.visibilityState === "visible") {
      try {
        const page = open.size > 1 ? await read("?status=queued,running&limit=200") : null;
        for (const batch of page ? page.results : []) {
          if (open.delete(batch.id)) show(batch);
        }
        for (const id of open) {
          const batch = await read(`/${id}`);
          if (batch) show(batch);
        }
      } catch {
        // The server is away for a moment: the next round asks again.
      }
    }
    if (cells.length) setTimeout(poll, EVERY_MS);
  };

  document.addEventListener("DOMContentLoaded", poll);
})();
