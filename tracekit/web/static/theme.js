"use strict";

// Loaded before the page is drawn, or it would flash in the other colours. Report files keep their choice alike.
{
  const KEY = "tracekit-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // Storage is switched off: the choice lasts as long as the page.
  }
  const apply = () => (root.dataset.theme = chosen ?? (system.matches ? "dark" : "light"));
  apply();
  system.addEventListener("change", apply);
  addEventListener("beforeprint", () => (root.dataset.theme = "light"));
  addEventListener("afterprint", apply);
  document.addEventListener("DOMContentLoaded", () => (document.getElementById("theme").hidden = false));
  document.addEventListener("click", (event) => {
    if (event.target.id !== "theme") return;
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      return;
    }
  });
}
