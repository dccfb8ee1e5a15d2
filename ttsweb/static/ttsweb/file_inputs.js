/* Keep the admin's own script from fields for files that it did not make.

It writes a chosen file's name into the first line of text that it finds three elements above, which in our forms is
another field or none at all. Its own fields stand in a box, ours in their label. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const spare = () => {
    for (const input of document.querySelectorAll('label > input[type="file"]')) input.hasChangeListener = true;
  };
  new MutationObserver(spare).observe(document.body, { childList: true, subtree: true });
  spare();
});
