/* The clips of further speakers in a job's form: a button adds a row, as long as one may be added. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("[data-speaker-clips]")) {
    const button = box.querySelector("[data-add]");
    const rows = () => box.querySelectorAll("[data-row]");
    const show = () => {
      button.hidden = rows().length >= Number(box.dataset.most);
    };

    button.addEventListener("click", () => {
      const row = rows()[0].cloneNode(true);
      const index = rows().length;
      for (const input of row.querySelectorAll("input, textarea")) {
        input.name = input.name.replace(/-\d+-/, `-${index}-`);
        input.value = "";
      }
      button.before(row);
      row.querySelector("input").focus();
      show();
    });
    show();
  }
});
