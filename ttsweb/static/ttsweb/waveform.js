/* Draw waveforms: peaks of 0 to 255 into every <canvas data-peaks>, in the colour of its text. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});

  ttsweb.drawWaveform = (canvas, peaks) => {
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || canvas.width;
    const height = canvas.clientHeight || canvas.height;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(canvas).color;
    const bars = Math.min(peaks.length, Math.max(1, Math.floor(width / 3)));
    for (let bar = 0; bar < bars; bar += 1) {
      const from = Math.floor((bar * peaks.length) / bars);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * peaks.length) / bars));
      const level = Math.max(...peaks.slice(from, to)) / 255;
      const tall = Math.max(1, level * height);
      context.fillRect((bar * width) / bars, (height - tall) / 2, Math.max(1, width / bars - 1), tall);
    }
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
      if (peaks.length) ttsweb.drawWaveform(canvas, peaks);
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    ttsweb.drawAll();
    window.addEventListener("resize", () => ttsweb.drawAll());
    // The colour follows the theme, which is a class of <html>.
    new MutationObserver(() => ttsweb.drawAll()).observe(document.documentElement, {
      attributeFilter: ["class"],
    });
  });
  document.addEventListener("htmx:afterSwap", (event) => ttsweb.drawAll(event.target));
})();
