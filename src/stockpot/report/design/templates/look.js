// Light or dark: as the reader's screen has it until the button says otherwise; kept where it can be.
(() => {
  const root = document.documentElement;
  let kept = null;
  try { kept = localStorage.getItem("look"); } catch { /* a page from a file may not keep anything */ }
  if (kept === "light" || kept === "dark") root.dataset.look = kept;
  document.getElementById("look").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.look ?? (dark ? "dark" : "light");
    root.dataset.look = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("look", root.dataset.look); } catch { /* as above */ }
  });
  // What is folded away is opened for paper, and folded again.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details[data-print]:not([open])")];
    opened.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
})();
// The part of an address after `#`: a place of the page, and after a `?` what its tables show.
const address = {
  read() {
    const [place, query = ""] = location.hash.slice(1).split("?");
    return { place, state: new URLSearchParams(query) };
  },
  write(changes) {
    const { place, state } = this.read();
    for (const [key, value] of Object.entries(changes)) {
      if (value) state.set(key, value); else state.delete(key);
    }
    const query = state.toString();
    const hash = place + (query ? `?${query}` : "");
    // A page inside another may not be allowed to change its address; it then works without.
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname); } catch { /* so be it */ }
  },
};
