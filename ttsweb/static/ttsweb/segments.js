/* Render one segment of a job again, or choose another of its takes, through the API. */
"use strict";

(() => {
  const ask = async (url, token, body) => {
    const answer = await fetch(url, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-CSRFToken": token },
      body: JSON.stringify(body),
    });
    if (answer.ok) return;
    const found = await answer.json();
    throw new Error(found.detail || found.title || `HTTP ${answer.status}`);
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-again], [data-choose]");
    if (!button) return;
    const token = document.querySelector("input[name=csrfmiddlewaretoken]")?.value || "";
    const state = button.closest("[data-segment]").querySelector("[data-state]");
    button.disabled = true;
    state.textContent = "Asking…";
    try {
      if (button.dataset.again) await ask(button.dataset.again, token, {});
      else await ask(button.dataset.choose, token, { take: button.dataset.take });
      window.location.reload();
    } catch (error) {
      state.textContent = error.message;
      button.disabled = false;
    }
  });
})();
