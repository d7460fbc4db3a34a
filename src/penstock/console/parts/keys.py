"""Keyboard shortcuts of every page: `/` focuses its search, `g t` opens the topics, `g g` the groups."""

from __future__ import annotations

from nicegui import ui

SEARCH = "app-search"
"""The class of the field that `/` focuses."""
_PAGES = {
    "o": "/",
    "t": "/topics",
    "g": "/groups",
    "s": "/schemas",
    "c": "/connectors",
    "x": "/transactions",
    "b": "/placement",
    "u": "/users",
    "a": "/acls",
    "k": "/quotas",
    "q": "/sql",
    "p": "/pipelines",
    "l": "/lineage",
}
# In the browser: a key that went through the server would be slow. Ignored while the user types text.
_SCRIPT = """<script>(function () {
  const pages = PAGES;
  let after_g = 0;
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable=true], [role=dialog]")) return;
    if (event.key === "/") {
      const field = document.querySelector(".SEARCH input");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (performance.now() - after_g < 1500) {
      after_g = 0;
      if (Object.hasOwn(pages, event.key)) window.location.assign(pages[event.key]);
    } else if (event.key === "g") {
      after_g = performance.now();
    }
  });
})();</script>"""


def keyboard() -> None:
    ui.add_body_html(_SCRIPT.replace("PAGES", str(_PAGES)).replace("SEARCH", SEARCH))
