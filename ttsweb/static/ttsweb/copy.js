/* Copy what a button says in `data-copy`, and say so on the button. */
"use strict";

/* Without https or localhost browsers have no clipboard for scripts, and some refuse it; this works there. */
const copySelected = (button) => {
  const field = Object.assign(document.createElement("textarea"), { value: button.dataset.copy, className: "tts-hidden" });
  button.after(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  button.focus();
  if (!isCopied) throw new Error("not copied");
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = (button.dataset.label = button.dataset.label || button.textContent);
  try {
    if (!navigator.clipboard) copySelected(button);
    else await navigator.clipboard.writeText(button.dataset.copy).catch(() => copySelected(button));
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied: select the text and press Ctrl + C";
  }
  setTimeout(() => (button.textContent = label), 2000);
});
