/* Keep the live parts of any page of the admin up to date.

The server alone says how a part looks: an element with `data-live="NAME"`, which it may have
marked with `data-open` because it is about to change. This script fetches the page again and
carries over what differs; players that play, fields, focus and open details stay as they are.
A part of its own address, `data-part="URL"`, is fetched as well. Inside `data-own` a script of
the page has the say. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const OPEN_MS = 2000;
  const ENDED_MS = 5000; // somebody may add, retry, rename or delete elsewhere
  const PATIENCE_MS = 60000;
  const SHARE = 4; // a page that takes long to make is asked for more seldom
  const CHOSEN = "input.action-select:checked"; // rows that an action is about to be done with
  const OWN = new Set(["open", "disabled", "selected", "aria-pressed", "aria-current", "aria-invalid", "style"]);
  let timer = null;
  let running = null;
  let isStale = false;

  const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.live || node.dataset.key || "" : "");
  const isAlike = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

  const carryAttributes = (old, fresh) => {
    for (const { name, value } of fresh.attributes) {
      if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!OWN.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  };

  const carry = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeName === "AUDIO" && !old.paused) return;
    if (old.nodeName === "CANVAS") {
      for (const name of Object.keys(fresh.dataset)) if (old.dataset[name] !== fresh.dataset[name]) old.dataset[name] = fresh.dataset[name];
      return;
    }
    if ("own" in old.dataset) return;
    carryAttributes(old, fresh);
    ttsweb.carryChildren(old, fresh);
  };

  ttsweb.carryChildren = (old, fresh) => {
    const kept = new Set([...fresh.childNodes].map(keyOf));
    // First, so that what stays need not be moved, which would end its sound and its focus.
    for (const one of [...old.childNodes]) if (keyOf(one) && !kept.has(keyOf(one))) one.remove();
    let place = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = keyOf(next);
      const known = key ? [...old.childNodes].find((one) => isAlike(one, next)) : place;
      if (known && isAlike(known, next)) {
        if (known !== place) old.insertBefore(known, place);
        carry(known, next);
        place = known.nextSibling;
      } else {
        old.insertBefore(document.importNode(next, true), place);
      }
    }
    while (place) {
      const after = place.nextSibling;
      place.remove();
      place = after;
    }
  };

  const fetchText = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.redirected && answer.url.includes("/login")) throw Object.assign(new Error(), { isLoggedOut: true });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer.text();
  };

  /* Fill an element with what its own address, or another one, has; `data-part` remembers it. */
  ttsweb.loadPart = async (place, url = place.dataset.part) => {
    const fresh = document.createElement("div");
    // Our own server's part of the page, whose texts are escaped there.
    fresh.innerHTML = await fetchText(url);
    place.dataset.part = url;
    ttsweb.carryChildren(place, fresh);
  };

  const notice = (sentence) => {
    let box = document.querySelector("[data-away]");
    if (!box) {
      box = document.createElement("p");
      box.className = "tts-away";
      box.setAttribute("role", "status");
      box.dataset.away = "";
      document.body.append(box);
    }
    if (box.textContent !== sentence) box.textContent = sentence;
    box.hidden = !sentence;
  };

  const update = async () => {
    const page = window.location.href.split("#")[0];
    const fresh = new DOMParser().parseFromString(await fetchText(page), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      if (part.querySelector(CHOSEN)) continue; // its cells move, the rows stay where they are
      const next = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      if (next && part.isConnected) carry(part, next);
    }
    for (const place of document.querySelectorAll("details[open] [data-part]")) await ttsweb.loadPart(place);
    document.dispatchEvent(new CustomEvent("ttsweb:fresh"));
  };

  const round = async () => {
    const began = performance.now();
    try {
      await update();
      notice("");
    } catch (error) {
      notice(error.isLoggedOut ? "You are logged out: log in again to see the progress." : "The server does not answer. This page continues as soon as the server answers.");
    }
    return performance.now() - began;
  };

  const wait = (milliseconds) => {
    clearTimeout(timer);
    timer = setTimeout(ttsweb.refresh, milliseconds);
  };

  /* Bring the page up to date now; what is asked for meanwhile is one more round after this one. */
  ttsweb.refresh = async () => {
    if (document.hidden) return;
    if (running) {
      isStale = true;
      await running;
      return;
    }
    clearTimeout(timer);
    running = round();
    const took = await running;
    running = null;
    const usual = document.querySelector("[data-live][data-open], [data-live] [data-open]") ? OPEN_MS : ENDED_MS;
    wait(isStale ? 0 : Math.max(usual, SHARE * took));
    isStale = false;
  };

  const begin = () => {
    if (!document.querySelector("[data-live]")) return;
    document.addEventListener("visibilitychange", () => document.hidden || ttsweb.refresh());
    window.addEventListener("online", () => ttsweb.refresh());
    wait(OPEN_MS / 4);
  };
  document.addEventListener("DOMContentLoaded", begin);
})();
