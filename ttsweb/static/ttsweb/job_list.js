/* Keep the progress of all visible jobs moving: one question for all of them, while one is open. */
"use strict";

(() => {
  const EVERY_MS = 2000;
  const OPEN = ["queued", "running"];
  const COLOURS = { running: "encoding", partial: "encoding", succeeded: "ready", failed: "failed" };

  const inWords = (seconds) => {
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  };

  const describe = (job) => {
    const parts = [];
    if (job.status === "queued" && job.queue_position) parts.push(`position ${job.queue_position}`);
    if (job.segments_total) parts.push(`${job.segments_done} of ${job.segments_total}`);
    if (OPEN.includes(job.status) && job.eta_seconds != null) parts.push(`about ${inWords(job.eta_seconds)} left`);
    if (!OPEN.includes(job.status) && job.real_time_factor) parts.push(`${job.real_time_factor.toFixed(1)}x real time`);
    return parts.join(" · ");
  };

  const show = (job) => {
    for (const cell of document.querySelectorAll(`[data-job="${job.id}"]`)) {
      const was = cell.dataset.status;
      cell.dataset.status = job.status;
      const bar = cell.querySelector("progress");
      if (bar) {
        const percent = Math.round(100 * job.progress);
        bar.value = job.progress;
        bar.title = `${percent} %`;
        bar.setAttribute("aria-label", `${percent} percent done`);
      }
      const words = cell.querySelector("[data-words]");
      if (words) words.textContent = describe(job);
      const badge = cell.querySelector("[data-badge]");
      if (badge) {
        badge.textContent = job.status;
        badge.className = `tts-badge tts-${COLOURS[job.status] || "pending"}`;
      }
      const audio = cell.querySelector("[data-audio]");
      if (audio && job.audio_url && !audio.querySelector("audio")) {
        const player = document.createElement("audio");
        player.controls = true;
        player.preload = "none";
        player.src = job.audio_url;
        player.setAttribute("aria-label", `Play job ${job.id.slice(0, 8)}`);
        audio.replaceChildren(player);
      }
      // A page of one job shows more than is told here: segments, waveform, times.
      if ("whole" in cell.dataset && OPEN.includes(was) && !OPEN.includes(job.status)) window.location.reload();
    }
  };

  const poll = async () => {
    const open = [...document.querySelectorAll("[data-job]")].filter((cell) => OPEN.includes(cell.dataset.status));
    const ids = [...new Set(open.map((cell) => cell.dataset.job))];
    if (ids.length && document.visibilityState === "visible") {
      try {
        const answer = await fetch(`/api/v1/jobs?limit=100&ids=${ids.join(",")}`, { credentials: "same-origin" });
        if (answer.ok) (await answer.json()).results.forEach(show);
      } catch {
        // The server is away for a moment: the next round asks again.
      }
    }
    if (ids.length || document.querySelector("[data-job]")) setTimeout(poll, EVERY_MS);
  };

  document.addEventListener("DOMContentLoaded", poll);
})();
