/* Choose rows of a list: one, several with Shift, all of the page, or all that there are.

Takes the place of Unfold's, which knows only the rows that the page was loaded with. */
"use strict";

(() => {
  const boxesOf = (list) => [...list.querySelectorAll("input.action-select")];

  /* Say how many are chosen; "all that there are" ends with every change of the choice. */
  const tell = (list, isAcross = false) => {
    const boxes = boxesOf(list);
    const chosen = boxes.filter((one) => one.checked).length;
    const isAll = chosen > 0 && chosen === boxes.length;
    for (const box of boxes) box.closest("tr").classList.toggle("selected", box.checked);
    const toggle = list.querySelector("input.action-toggle");
    if (toggle) toggle.checked = isAll;
    const show = (selector, isShown) => {
      for (const one of list.querySelectorAll(`.actions ${selector}`)) one.classList.toggle("hidden", !isShown);
    };
    show(".question", isAll && !isAcross);
    show(".clear", isAcross);
    show(".all", isAcross);
    show(".action-counter", !isAcross);
    const counter = list.querySelector(".action-counter");
    if (counter) counter.textContent = `${chosen} of ${boxes.length} selected`;
    for (const across of list.querySelectorAll("input.select-across")) {
      across.value = isAcross ? "1" : "0";
      across.dispatchEvent(new Event("input")); // Alpine keeps a copy of it
    }
  };

  const begin = (list) => {
    let last = null;
    let isShift = false;
    const choose = (boxes, isChosen) => {
      for (const box of boxes) box.checked = isChosen;
      tell(list);
    };
    for (const name of ["keydown", "keyup"]) {
      document.addEventListener(name, (event) => {
        isShift = event.shiftKey;
      });
    }
    list.addEventListener("change", ({ target }) => {
      const boxes = boxesOf(list);
      if (target.matches("input.action-toggle")) choose(boxes, target.checked);
      if (!target.matches("input.action-select")) return;
      const [from, to] = [boxes.indexOf(last), boxes.indexOf(target)].sort((one, other) => one - other);
      choose(isShift && from >= 0 ? boxes.slice(from, to + 1) : [target], target.checked);
      last = target;
    });
    list.addEventListener("click", (event) => {
      const link = event.target.closest(".actions :is(.question, .clear) a");
      if (!link) return;
      event.preventDefault();
      if (link.closest(".question")) tell(list, true);
      else choose(boxesOf(list), false);
    });
    document.addEventListener("ttsweb:fresh", () => boxesOf(list).some((one) => one.checked) || tell(list));
    window.addEventListener("pageshow", () => tell(list)); // a page that comes back has its choice
  };

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".result-list-wrapper").forEach(begin));
})();
