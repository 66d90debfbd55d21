// The theme is the system's until the button changes it.
{
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const KEY = "tracekit-theme";
  const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  try { // A sandboxed page has no storage.
    const chosen = localStorage.getItem(KEY);
    if (chosen) root.dataset.theme = chosen;
  } catch { /* as the system has it */ }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(KEY, root.dataset.theme); } catch { /* until the page is closed */ }
  });
}
