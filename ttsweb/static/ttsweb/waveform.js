/* Draw waveforms: peaks of 0 to 255 into every <canvas data-peaks>, in the colour of its text. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const MOST_LINES = 120; // more of them would hide the wave

  /* `canvas.played` is the share that was heard, `canvas.lit` where the current mark lies. */
  ttsweb.drawWaveform = (canvas, peaks) => {
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || canvas.width;
    const height = canvas.clientHeight || canvas.height;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(canvas).color;
    if (canvas.lit) {
      context.globalAlpha = 0.18;
      context.fillRect(canvas.lit[0] * width, 0, (canvas.lit[1] - canvas.lit[0]) * width, height);
    }
    const bars = Math.min(peaks.length, Math.max(1, Math.floor(width / 3)));
    for (let bar = 0; bar < bars; bar += 1) {
      const from = Math.floor((bar * peaks.length) / bars);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * peaks.length) / bars));
      const level = Math.max(...peaks.slice(from, to)) / 255;
      const tall = Math.max(1, level * height);
      context.globalAlpha = !canvas.played || bar / bars < canvas.played ? 1 : 0.45;
      context.fillRect((bar * width) / bars, (height - tall) / 2, Math.max(1, width / bars - 1), tall);
    }
    const marks = JSON.parse(canvas.dataset.marks || "[]");
    const seconds = Number(canvas.dataset.seconds);
    context.globalAlpha = 0.6;
    for (const [, start] of marks.length <= MOST_LINES ? marks : []) context.fillRect((start / seconds) * width, 0, 1, height);
  };

  const read = (canvas) => {
    try {
      return JSON.parse(canvas.dataset.peaks);
    } catch {
      return [];
    }
  };

  ttsweb.drawAll = (root) => {
    for (const canvas of (root || document).querySelectorAll("canvas[data-peaks]")) {
      const peaks = read(canvas);
      canvas.drawn = canvas.dataset.peaks;
      if (peaks.length) ttsweb.drawWaveform(canvas, peaks);
    }
  };

  const drawFresh = () => {
    for (const canvas of document.querySelectorAll("canvas[data-peaks]")) if (canvas.drawn !== canvas.dataset.peaks) ttsweb.drawAll(canvas.parentNode);
  };

  document.addEventListener("DOMContentLoaded", () => {
    ttsweb.drawAll();
    window.addEventListener("resize", () => ttsweb.drawAll());
    // The colour follows the theme, which is a class of <html>.
    new MutationObserver(() => ttsweb.drawAll()).observe(document.documentElement, {
      attributeFilter: ["class"],
    });
  });
  document.addEventListener("ttsweb:fresh", drawFresh);
})();
