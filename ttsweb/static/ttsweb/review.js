/* The review page: walk through what needs ears, listen, compare takes, edit, approve; by keys. */
"use strict";

(() => {
  const root = document.getElementById("tts-review");
  if (!root) return;
  const POLL_MS = 1500;
  const NEAR_THE_END = 5; // rows left when the next page is asked for
  const part = (name) => root.querySelector(`[data-${name}]`);
  const button = (name) => root.querySelector(`[data-do="${name}"]`);
  const items = []; // as the API has them, with `note`: what became of each here
  const sound = new Audio();
  let at = -1;
  let left = 0;
  let more = null; // address of the next page
  let loading = null;
  let generation = 0; // counted up when the filters change; answers of an older one are dropped
  let queue = []; // what is still to be played in context

  // --- talking to the server and to the person -------------------------------------------------
  const ask = (url, body) => ttsweb.ask(url, body && { method: "POST", body });
  const say = (words) => {
    part("said").textContent = words;
  };
  const make = (tag, words = "", classes = "", more = {}) => ttsweb.make(tag, { class: classes, ...more }, words);
  const current = () => items[at];
  const segmentUrl = (item, action) => `/api/v1/jobs/${item.job}/segments/${item.id}/${action}`;
  const isOpen = (item) => item.status === "queued" || item.status === "claimed";
  const placeOf = (item) => {
    const chapter = item.chapter.title || `chapter ${item.chapter.index + 1}`;
    return `${chapter}, segment ${item.index + 1}`;
  };

  // --- drawing ---------------------------------------------------------------------------------
  const noteOf = (item) => {
    if (item.note) return item.note;
    if (isOpen(item)) return "rendering";
    if (item.approved) return "approved";
    return item.reason || "good";
  };
  const colour = { failed: "failed", approved: "ready", kept: "ready", good: "ready" };
  const badge = (item) => {
    const note = noteOf(item);
    return make("span", note, `tts-badge tts-${colour[note] || "encoding"}`);
  };
  const drawRow = (item, index) => {
    const row = make("li");
    const link = make("button", "", "tts-review-row", { type: "button", "data-go": index, "aria-current": index === at && "true" });
    link.append(badge(item), make("span", item.title, "tts-review-title"));
    link.append(make("span", item.text, "tts-review-start"));
    row.append(link);
    return row;
  };
  const drawList = () => {
    part("list").replaceChildren(...items.map(drawRow));
    part("left").textContent = left.toLocaleString("en");
    button("more").hidden = !more;
    part("list").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  };
  const drawTake = (item, take, number) => {
    const row = make("li", "", take.is_kept ? "tts-kept" : "");
    const player = make("audio", "", "", { controls: true, preload: "none", src: take.audio_url, "aria-label": `Take ${number}` });
    const score = take.score === null ? "not checked" : `score ${take.score.toFixed(2)}`;
    const told = [`${take.seconds.toFixed(1)} s`, score, ...take.flags].join(" · ");
    const words = take.is_kept ? `Take ${number} is chosen` : `Choose take ${number}`;
    const keep = make("button", words, "tts-button", { type: "button", "data-keep": number, disabled: isOpen(item) });
    row.append(player, keep, make("span", told, "tts-quiet"));
    if (take.heard !== null) row.append(make("span", `Heard: ${take.heard}`, "tts-quiet"));
    return row;
  };
  const drawText = (item) => {
    const lines = [...item.before, item, ...item.after];
    return lines.map((line) => make("p", line.text, line === item ? "tts-review-this" : "tts-quiet"));
  };
  const drawCurrent = () => {
    const item = current();
    part("segment").hidden = !item;
    if (!item) {
      const none = part("filters").elements.heard.value === "true" ? "No segment with audio is left to review." : "There is nothing to review.";
      part("heading").textContent = items.length ? "Everything is reviewed." : none;
      return;
    }
    part("heading").textContent = `${item.title}: ${placeOf(item)}`;
    const score = item.score === null || !item.take ? "" : ` score ${item.score.toFixed(2)}`;
    const failed = item.error_code ? ` ${item.error_message} (${item.error_code})` : "";
    part("why").replaceChildren(badge(item), make("span", `${score}${failed}`));
    part("flags").replaceChildren(...item.flags.map((flag) => make("li", flag.sentence)));
    part("text").replaceChildren(...drawText(item));
    part("spoken").textContent = item.spoken_text === item.text ? "" : `Spoken: ${item.spoken_text}`;
    const kept = item.takes.find((take) => take.is_kept);
    part("heard").textContent = kept && kept.heard !== null ? `Heard: ${kept.heard}` : "";
    part("takes").replaceChildren(...item.takes.map((take, index) => drawTake(item, take, index + 1)));
    part("job").href = root.dataset.jobPage.replace("{job}", item.job);
    button("approve").disabled = isOpen(item) || !item.take;
    button("again").disabled = button("edit").disabled = isOpen(item);
    button("context").disabled = !item.take;
    closeEditor();
  };
  const draw = () => {
    drawList();
    drawCurrent();
  };

  // --- where we are ----------------------------------------------------------------------------
  const load = async () => {
    if (!more || loading) return loading;
    const mine = generation;
    loading = ask(more)
      .then((page) => {
        if (mine !== generation) return;
        const known = new Set(items.map((item) => item.id));
        items.push(...page.results.filter((item) => !known.has(item.id)));
        more = page.next;
        left = page.left;
      })
      .finally(() => {
        if (mine === generation) loading = null;
      });
    return loading;
  };
  const go = (index) => {
    stop();
    at = index;
    draw();
    part("heading").focus();
    if (at >= 0 && items.length - at <= NEAR_THE_END && more) load().then(drawList, (error) => say(error.message));
  };
  const step = (by) => {
    const index = Math.min(Math.max(at + by, 0), items.length - 1);
    if (index === at) say(by > 0 ? "This is the last one." : "This is the first one.");
    else if (items.length) go(index);
  };
  const goOn = async () => {
    const isLeft = (item) => !item.note && !isOpen(item) && (item.reason || item.approved);
    let index = items.findIndex((item, place) => place > at && isLeft(item));
    while (index < 0 && more) {
      await load();
      index = items.findIndex((item, place) => place > at && isLeft(item));
    }
    if (index < 0) index = items.findIndex(isLeft);
    go(index);
  };
  const start = async () => {
    generation += 1;
    loading = null;
    items.length = 0;
    at = -1;
    left = 0;
    const query = new URLSearchParams(window.location.search);
    for (const [name, value] of new FormData(part("filters"))) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    part("scope").hidden = !(query.has("book") || query.has("job"));
    more = query.size ? `${root.dataset.review}?${query}` : root.dataset.review;
    try {
      await load();
      at = items.length ? 0 : -1;
      say("");
    } catch (error) {
      say(error.message);
      more = null;
    }
    draw();
  };

  // --- listening -------------------------------------------------------------------------------
  const stop = () => {
    queue = [];
    sound.pause();
    button("context").textContent = "Play in context";
    for (const player of root.querySelectorAll("audio")) player.pause();
  };
  const playNext = () => {
    const url = queue.shift();
    if (!url) {
      stop();
      return;
    }
    sound.src = url;
    sound.play().catch((error) => {
      if (error.name !== "AbortError") say("This audio cannot be played.");
    });
  };
  const playInContext = () => {
    const isPlaying = queue.length || !sound.paused;
    stop();
    const item = current();
    if (isPlaying || !item) return;
    const kept = item.takes.find((take) => take.is_kept);
    const around = [item.before.at(-1)?.audio_url, kept?.audio_url, item.after[0]?.audio_url];
    queue = around.filter(Boolean);
    if (!queue.length) return;
    button("context").textContent = "Stop";
    playNext();
  };
  const playTake = (number) => {
    const player = part("takes").querySelectorAll("audio")[number - 1];
    if (!player) return;
    stop();
    player.currentTime = 0;
    player.play().catch(() => say("This audio cannot be played."));
  };
  sound.addEventListener("ended", playNext);
  sound.addEventListener("error", () => queue.length && playNext());

  // --- judging ---------------------------------------------------------------------------------
  const replace = (item, fresh) => {
    const index = items.indexOf(item);
    if (index >= 0) items[index] = fresh;
    return fresh;
  };
  const refresh = async (item) => ask(`${root.dataset.review}/${item.id}`);
  const settle = async (item, note, words) => {
    const needed = !item.note && !item.approved && item.reason;
    replace(item, { ...(await refresh(item)), note });
    if (needed) left = Math.max(0, left - 1);
    say(words);
    await goOn();
  };
  const guarded = (work) => async (...given) => {
    const item = current();
    if (!item || item.isBusy) return;
    item.isBusy = true;
    try {
      await work(item, ...given);
    } catch (error) {
      say(error.message);
    } finally {
      item.isBusy = false;
    }
  };
  const approve = guarded(async (item) => {
    if (!item.take) return say("This segment has no take to approve; render it again, or edit the text.");
    if (isOpen(item)) return say("This segment is being rendered.");
    await ask(`${root.dataset.review}/${item.id}/approve`, { take: item.take });
    return settle(item, "approved", `${placeOf(item)} is approved.`);
  });
  const keep = guarded(async (item, number) => {
    const take = item.takes[number - 1];
    if (!take) return say(`There is no take ${number}.`);
    await ask(segmentUrl(item, "choose"), { take: take.take });
    return settle(item, "kept", `Take ${number} of ${placeOf(item)} is chosen.`);
  });
  const renderAgain = guarded(async (item, body) => {
    stop();
    await ask(segmentUrl(item, "render"), body);
    const fresh = replace(item, await refresh(item));
    say(`${placeOf(item)} is rendered again. You can continue; a message appears when the new take is ready.`);
    draw();
    if (isOpen(fresh)) part("heading").focus();
  });
  const watch = async () => {
    for (const item of items.filter(isOpen)) {
      const fresh = await refresh(item).catch(() => item);
      if (isOpen(fresh) || !items.includes(item)) continue;
      replace(item, fresh);
      say(fresh.take ? `${placeOf(item)} has a new take: listen to it.` : `${placeOf(item)} failed again.`);
      draw();
    }
    window.setTimeout(watch, POLL_MS);
  };

  // --- editing ---------------------------------------------------------------------------------
  const closeEditor = () => {
    part("editor").hidden = true;
    button("edit").setAttribute("aria-expanded", "false");
  };
  const edit = () => {
    if (!current() || isOpen(current())) return;
    part("words").value = current().spoken_text;
    part("editor").hidden = false;
    button("edit").setAttribute("aria-expanded", "true");
    part("words").focus();
  };
  const leave = () => {
    closeEditor();
    button("edit").focus();
  };
  part("editor").addEventListener("submit", (event) => {
    event.preventDefault();
    renderAgain({ text: part("words").value });
  });
  part("words").addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) part("editor").requestSubmit();
  });

  // --- buttons and keys ------------------------------------------------------------------------
  const actions = {
    approve,
    edit,
    leave,
    again: () => renderAgain({}),
    before: () => step(-1),
    context: playInContext,
    help: () => part("help").showModal(),
    more: () => load().then(drawList, (error) => say(error.message)),
    next: () => step(1),
  };
  const byKey = { a: "approve", e: "edit", r: "again", j: "next", k: "before", "?": "help", " ": "context" };
  root.addEventListener("click", (event) => {
    const pressed = event.target.closest("button");
    if (!pressed) return;
    if (pressed.dataset.do) actions[pressed.dataset.do]();
    if (pressed.dataset.keep) keep(Number(pressed.dataset.keep));
    if (pressed.dataset.go) go(Number(pressed.dataset.go));
  });
  document.addEventListener("keydown", (event) => {
    if (!part("keys").checked || part("help").open || event.repeat) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    if (event.key === " " && event.target.closest("button, a, audio, summary")) return; // its own
    const digit = /^Digit([1-9])$/.exec(event.code);
    const action = actions[byKey[event.key]];
    if (!digit && !action) return;
    event.preventDefault();
    if (action) action();
    else if (event.shiftKey) playTake(Number(digit[1]));
    else keep(Number(digit[1]));
  });
  part("filters").addEventListener("change", (event) => {
    if (event.target.name === "status" && event.target.value === "failed") event.currentTarget.elements.heard.value = "";
    if (event.target.name) start();
    else window.localStorage.setItem("tts-review-keys", event.target.checked ? "on" : "off");
  });
  part("filters").addEventListener("submit", (event) => event.preventDefault());

  part("keys").checked = window.localStorage.getItem("tts-review-keys") !== "off";
  const asked = new URLSearchParams(window.location.search);
  for (const field of part("filters").querySelectorAll("select")) field.value = asked.get(field.name) || "";
  // What nobody can listen to is asked for alone: one overdue job may have thousands of it.
  if (!asked.has("heard")) part("filters").elements.heard.value = "true";
  start();
  watch();
})();
