// Before the first paint: the theme that the reader chose, so that the page does not flash.
try {
  const chosen = localStorage.getItem("forebay-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: the theme of the system.
}
