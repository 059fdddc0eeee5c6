"use strict";
// A mistake of the other scripts shows on the page, where a test reads it.
addEventListener("error", (e) => {
  document.getElementById("errors").textContent += `script error: ${e.message} (line ${e.lineno})\n`;
});
