/* Ask the API of this site, as the user who is logged in; its refusals become sentences. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});

  ttsweb.token = () => document.querySelector("input[name=csrfmiddlewaretoken]")?.value || "";

  /* What a problem says, each wrong field by its name. */
  ttsweb.explain = (problem, status) => {
    const told = (problem.errors || []).map((one) => (one.attr ? `${one.attr}: ${one.detail}` : one.detail));
    return told.join(" ") || problem.detail || problem.title || `HTTP ${status}`;
  };

  /* Return the answer's JSON, null for none; throw an Error with the problem's `code`. */
  ttsweb.ask = async (url, { method = "GET", body } = {}) => {
    const headers = { Accept: "application/json" };
    if (method !== "GET") headers["X-CSRFToken"] = ttsweb.token();
    if (body !== undefined && !(body instanceof FormData)) headers["Content-Type"] = "application/json";
    const answer = await fetch(url, {
      method,
      headers,
      credentials: "same-origin",
      body: body === undefined || body instanceof FormData ? body : JSON.stringify(body),
    });
    const text = await answer.text();
    let found = null;
    try {
      found = text ? JSON.parse(text) : null;
    } catch {
      found = { detail: `The server answered with the status ${answer.status} and gave no reason.` };
    }
    if (answer.ok) return found;
    throw Object.assign(new Error(ttsweb.explain(found || {}, answer.status)), { code: found?.code, status: answer.status });
  };

  /* Return a job once it has ended; `show` gets each state of it, and null while the server is away. */
  ttsweb.followJob = async (url, job, show, seconds = 2) => {
    let now = job;
    while (["queued", "running"].includes(now.status)) {
      try {
        now = await ttsweb.ask(`${url}?wait=${seconds}`);
        show(now);
      } catch (error) {
        if (error.status && error.status < 500) throw error;
        show(null);
        await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
      }
    }
    return now;
  };

  /* Let files be dropped on an element, which is lit while they hang over it. */
  ttsweb.acceptDrops = (zone, take, lit = zone) => {
    const over = (event) => {
      event.preventDefault();
      lit.classList.add("tts-dragging");
    };
    for (const kind of ["dragenter", "dragover"]) zone.addEventListener(kind, over);
    zone.addEventListener("dragleave", (event) => {
      if (!zone.contains(event.relatedTarget)) lit.classList.remove("tts-dragging");
    });
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      lit.classList.remove("tts-dragging");
      take(event.dataTransfer.files, event);
    });
  };

  ttsweb.hours = (seconds) => {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  };

  /* "1 book" or "1,200 books". */
  ttsweb.refusals = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

  /* Make an element: properties, then children, which may be texts. */
  ttsweb.make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") element.className = value;
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key in element && !key.startsWith("aria")) element[key] = value;
      else element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
})();
