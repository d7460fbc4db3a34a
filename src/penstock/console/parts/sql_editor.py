"""An editor of SQL in the browser: completion by the console, the colours of the page, errors in place."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import events, ui

from penstock.sql.shell.completion import Known, candidates

_MOST_CHARACTERS = 20_000
"""Of the text before the cursor: what comes next depends on the statement that it is in."""
_MOST_CANDIDATES = 100
_TYPES = {"keyword": "keyword", "column": "property", "topic": "variable", "query": "constant"}
# The bundle has CodeMirror's completion switched on; languages add sources to it, and so does this.
_SCRIPT = """
(async () => {
  const element = getElement(ID);
  const CM = await import("nicegui-codemirror");
  const editor = element.editor || await element.editorPromise;
  const asked = new Map();
  let number = 0;
  window.penstockCompleted = (at, found) => { asked.get(at)?.(found); asked.delete(at); };
  async function source(context) {
    const before = context.state.sliceDoc(Math.max(0, context.pos - MOST), context.pos);
    if (!context.explicit && !/[\\w.`$]$/.test(before)) return null;
    const at = ++number;
    const answer = new Promise(resolve => {
      asked.set(at, resolve);
      setTimeout(() => window.penstockCompleted(at, []), 3000);
    });
    emitEvent("sql_complete", {at, before});
    const found = await answer;
    if (!found.length || context.aborted) return null;
    return {from: context.pos + found[0].start, options: found, validFor: /^[\\w$]*$/};
  }
  editor.dispatch({effects: CM.StateEffect.appendConfig.of(
    CM.EditorState.languageData.of(() => [{autocomplete: source}]))});
  editor.contentDOM.setAttribute("aria-label", "SQL");
  const paint = () =>
    element.setTheme(document.body.classList.contains("body--dark") ? "oneDark" : "basicLight");
  paint();
  new MutationObserver(paint).observe(document.body, {attributes: true, attributeFilter: ["class"]});
})()
"""


class SqlEditor:
    """`run` is called by Ctrl-Enter; `known` are the names for the completion."""

    def __init__(self, text: str, run: Callable[[], Awaitable[None]]) -> None:
        self.known = Known()
        self._marked = False
        # Esper's colours: of a SQL for streams, and without a completion of their own.
        self.element = ui.codemirror(text, language="Esper", line_wrapping=True, keymap={"Mod-Enter": run})
        self.element.classes("w-full sql-editor")
        self.element.on_value_change(self.unmark)
        ui.on("sql_complete", self._complete)
        script = _SCRIPT.replace("ID", str(self.element.id)).replace("MOST", str(_MOST_CHARACTERS))
        ui.timer(0.0, lambda: ui.run_javascript(script), once=True)

    @property
    def text(self) -> str:
        return self.element.value or ""

    @text.setter
    def text(self, value: str) -> None:
        self.element.value = value

    def _complete(self, event: events.GenericEventArguments) -> None:
        asked = event.args if isinstance(event.args, dict) else {}
        at, before = asked.get("at"), asked.get("before")
        if not isinstance(at, int) or not isinstance(before, str):
            return
        found = completions(before[-_MOST_CHARACTERS:], self.known)
        ui.run_javascript(f"window.penstockCompleted({at}, {json.dumps(found)})")

    def mark(self, line: int, column: int) -> None:
        """Show where an error is; both count from 1."""
        marks = error_marks(self.text, line, column)
        if marks:
            self._marked = True
            self.element.run_method("setDecorations", marks)
            self.element.reveal_line(line)

    def unmark(self) -> None:
        # Not as a property: an update of the element brings the text that the console knows, and would undo
        # what was typed since.
        if self._marked:
            self._marked = False
            self.element.run_method("setDecorations", [])


def completions(before: str, known: Known) -> list[dict[str, Any]]:
    """What CodeMirror shows: all for the same place."""
    found: dict[str, dict[str, Any]] = {}
    start: int | None = None
    for each in candidates(before, known):
        if start is None:
            start = each.start
        if each.start == start and len(found) < _MOST_CANDIDATES:
            entry = {"label": each.text, "type": _TYPES.get(each.kind, "class"), "start": each.start}
            found.setdefault(each.text, entry if each.kind == "keyword" else {**entry, "detail": each.kind})
    return list(found.values())


def error_marks(text: str, line: int, column: int) -> list[dict[str, Any]]:
    """The line, and the word or character in it, as CodeMirror's decorations."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return []
    marks: list[dict[str, Any]] = [{"kind": "line", "line": line, "class": "sql-error-line"}]
    content = lines[line - 1]
    at = column - 1
    if 0 <= at < len(content):
        end = at + 1
        while (
            content[at].isalnum() and end < len(content) and (content[end].isalnum() or content[end] == "_")
        ):
            end += 1
        start = sum(len(each) + 1 for each in lines[: line - 1])
        marks.append({"kind": "mark", "from": start + at, "to": start + end, "class": "sql-error"})
    return marks
