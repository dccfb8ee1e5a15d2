/* Play in place: all rows of a page share one player, and a file has a waveform that seeks. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const STEP_SECONDS = 5;
  const sound = new Audio();
  sound.preload = "none";
  let url = ""; // what the shared player has

  // --- rows ------------------------------------------------------------------------------------
  const rowButtons = () => [...document.querySelectorAll("button[data-listen]")];
  const mark = () => {
    for (const button of rowButtons()) {
      const isOn = !sound.paused && button.dataset.listen === url;
      if ((button.getAttribute("aria-pressed") === "true") !== isOn) button.setAttribute("aria-pressed", String(isOn));
    }
  };
  const say = (button, words) => {
    const state = button.closest("[data-actions]")?.querySelector("[data-state]");
    if (state) state.textContent = words;
  };
  const stopOthers = (player) => {
    for (const one of document.querySelectorAll("audio")) if (one !== player) one.pause();
    if (player !== sound) sound.pause();
  };
  ttsweb.listen = (button) => {
    const isOn = !sound.paused && url === button.dataset.listen;
    sound.pause();
    if (isOn) return;
    url = button.dataset.listen;
    stopOthers(sound);
    sound.src = url;
    sound.play().catch((error) => error.name !== "AbortError" && say(button, "This audio cannot be played."));
  };
  const playNext = () => {
    mark();
    const buttons = rowButtons();
    const next = buttons[buttons.findIndex((one) => one.dataset.listen === url) + 1];
    if (next?.closest("[data-follow]")?.contains(buttons.find((one) => one.dataset.listen === url))) ttsweb.listen(next);
  };
  for (const name of ["play", "pause", "emptied"]) sound.addEventListener(name, mark);
  sound.addEventListener("ended", playNext);

  // --- the whole file --------------------------------------------------------------------------
  const clock = (seconds) => {
    const whole = Math.floor(seconds);
    const hours = Math.floor(whole / 3600);
    const minutes = String(Math.floor(whole / 60) % 60).padStart(hours ? 2 : 1, "0");
    return `${hours ? `${hours}:` : ""}${minutes}:${String(whole % 60).padStart(2, "0")}`;
  };
  const waveOf = (player) => player.closest("[data-timeline]")?.querySelector("canvas");
  const playerOf = (canvas) => canvas.closest("[data-timeline]").querySelector("audio");
  const secondsOf = (canvas, player) => player.duration || Number(canvas.dataset.seconds) || 0;
  const marksOf = (canvas) => JSON.parse(canvas.dataset.marks || "[]");
  const markAt = (canvas, seconds) => marksOf(canvas).find(([, start, end]) => seconds >= start && seconds < end);

  const show = (player) => {
    const canvas = waveOf(player);
    if (!canvas) return;
    const total = secondsOf(canvas, player);
    const now = markAt(canvas, player.currentTime);
    const isBegun = player.currentTime > 0;
    canvas.played = total ? player.currentTime / total : 0;
    canvas.lit = isBegun && now ? [now[1] / total, now[2] / total] : null;
    ttsweb.drawWaveform(canvas, JSON.parse(canvas.dataset.peaks));
    const place = `${clock(player.currentTime)} of ${clock(total)}${now ? `, ${canvas.dataset.noun} ${now[0]}` : ""}`;
    canvas.setAttribute("aria-valuenow", String(Math.floor(player.currentTime)));
    canvas.setAttribute("aria-valuetext", place);
    const words = canvas.closest("[data-timeline]").querySelector("[data-now]");
    if (words && words.textContent !== place) words.textContent = place;
    for (const row of document.querySelectorAll("[data-mark]")) {
      if (isBegun && now && row.dataset.mark === String(now[0])) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  };
  const seek = (canvas, seconds) => {
    const player = playerOf(canvas);
    const move = () => {
      player.currentTime = Math.min(Math.max(seconds, 0), secondsOf(canvas, player));
    };
    if (player.readyState) return move();
    player.addEventListener("loadedmetadata", move, { once: true });
    player.preload = "metadata";
    return player.load();
  };
  ttsweb.playFrom = (player, seconds) => {
    seek(waveOf(player), seconds);
    player.play().catch(() => {}); // where the browser wants a click first
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-listen]");
    if (button) ttsweb.listen(button);
    const canvas = event.target.closest("[data-timeline] canvas");
    if (!canvas) return;
    const box = canvas.getBoundingClientRect();
    const player = playerOf(canvas);
    ttsweb.playFrom(player, ((event.clientX - box.left) / box.width) * secondsOf(canvas, player));
  });
  document.addEventListener("keydown", (event) => {
    const canvas = event.target.closest?.("[data-timeline] canvas");
    if (!canvas) return;
    const player = playerOf(canvas);
    const at = player.currentTime;
    const steps = { ArrowRight: at + STEP_SECONDS, ArrowUp: at + STEP_SECONDS, ArrowLeft: at - STEP_SECONDS, ArrowDown: at - STEP_SECONDS, Home: 0, End: secondsOf(canvas, player) };
    if (event.key in steps) seek(canvas, steps[event.key]);
    else if (event.key !== " " && event.key !== "Enter") return;
    else if (player.paused) player.play().catch(() => {});
    else player.pause();
    event.preventDefault();
  });
  document.addEventListener("play", (event) => stopOthers(event.target), true);
  for (const name of ["timeupdate", "seeked", "loadedmetadata"]) document.addEventListener(name, (event) => show(event.target), true);
  document.addEventListener("ttsweb:fresh", mark);
})();
