/* Swagger UI is dark where <html> has its class; let it follow the system, as the other pages do. */
"use strict";

(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();
})();
