"""The shell: executes statements from a prompt, from files or from a pipe.

At the prompt a statement may have several lines and ends with `;`. Ctrl-C clears the input, or ends a push
query; Ctrl-D exits. A script ends at the first error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.sql.language.lexer.keywords import STATEMENTS
from penstock.sql.language.parser import is_complete
from penstock.sql.shell.client import Session, Unreachable
from penstock.sql.shell.completion import Candidate, Known, candidates
from penstock.sql.shell.printing import JsonLines, TextTables, error_text

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.document import Document

_COMMANDS = ("help", "exit", "quit", "clear")
BANNER = "Statements end with `;`. `help` lists them, Tab completes, Ctrl-C ends a push query, Ctrl-D leaves."


class Shell:
    """One session with a server. `run` is for scripts, `prompt` for people."""

    def __init__(
        self,
        session: Session,
        *,
        as_json: bool = False,
        out: TextIO | None = None,
        errors: TextIO | None = None,
    ) -> None:
        self.session = session
        self._out = out or sys.stdout
        self._errors = errors or sys.stderr
        self._as_json = as_json

    def run(self, text: str) -> bool:
        """Executes a text of statements and shows the results. Returns whether all succeeded."""
        if not text.strip():
            return True
        output = JsonLines(self._out) if self._as_json else TextTables(self._out)
        failed = False
        try:
            with self.session.run(text) as lines:
                for line in lines:
                    if "error" in line:
                        failed = True
                        if isinstance(output, TextTables):
                            output.flush()
                            self._errors.write(f"Error: {error_text(line, text)}\n")
                            self._errors.flush()
                            continue
                    output.line(line)
        except KeyboardInterrupt:
            if isinstance(output, TextTables):
                output.flush()
            raise
        except Unreachable as error:
            self._errors.write(f"Error: {error}\n")
            return False
        return not failed

    def prompt(self, history: Path | None) -> None:
        """Reads and executes statements until the end of input."""
        known = _Knowledge(self.session.url)
        known.refresh()
        session = _prompt_session(history, known)
        self._out.write(f"{BANNER}\n")
        self._out.flush()
        while True:
            try:
                text = session.prompt("sql> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            word, _, rest = text.strip().rstrip(";").strip().partition(" ")
            if word.lower() in ("exit", "quit") and not rest:
                return
            if word.lower() == "help":
                self._out.write(help_text(rest) + "\n")
                continue
            if word.lower() == "clear" and not rest:
                from prompt_toolkit.shortcuts import clear

                clear()
                continue
            try:
                self.run(text)
            except KeyboardInterrupt:
                self._out.write("\n(ended)\n")
            self._out.flush()
            known.refresh()


class _Knowledge:
    """The names for completion; a thread updates them in the background."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.now = Known()
        self._busy = threading.Lock()

    def refresh(self) -> None:
        threading.Thread(target=self._ask, name="sql-completion", daemon=True).start()

    def _ask(self) -> None:
        if not self._busy.acquire(blocking=False):
            return
        session = Session(self._url)
        try:
            relations = session.ask("/relations", timeout=30)
            self.now = Known.of(relations, session.ask("/queries", timeout=30))
        except (Unreachable, KeyError, TypeError, AttributeError):
            pass  # without it, keywords are completed
        finally:
            session.close()
            self._busy.release()


def help_text(about: str) -> str:
    """All statements, or the syntax of those that start with these words."""
    wanted = about.strip().upper()
    chosen = [each for each in STATEMENTS if not wanted or each.name.startswith(wanted)]
    if not chosen:
        return f"no statement {wanted}: " + ", ".join(each.name for each in STATEMENTS)
    if wanted:
        return "\n".join(f"{each.syntax}\n    {each.meaning}" for each in chosen)
    width = max(len(each.name) for each in chosen)
    lines = [f"{each.name:{width}}  {each.meaning}" for each in chosen]
    return "\n".join([*lines, "", "help STATEMENT shows its syntax; exit, quit and clear need no `;`."])


def ends(text: str) -> bool:
    """Whether Enter sends the text, or only starts a new line."""
    word = text.strip().partition(" ")[0].lower().rstrip(";")
    return word in _COMMANDS or is_complete(text)


def _prompt_session(history: Path | None, known: _Knowledge) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import Completer, Completion, ThreadedCompleter
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    class Completes(Completer):
        def get_completions(self, document: Document, complete_event: Any) -> Iterator[Completion]:
            seen: set[str] = set()
            for each in sorted(candidates(document.text_before_cursor, known.now), key=_order):
                if each.text not in seen:
                    seen.add(each.text)
                    yield Completion(each.text, each.start, display_meta=each.kind)

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif ends(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=ThreadedCompleter(Completes()),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, number, wrapped: "...> ".rjust(width),
    )


_KINDS = ("column", "stream", "table", "query", "topic", "keyword")


def _order(candidate: Candidate) -> tuple[int, str]:
    kind = candidate.kind
    return (_KINDS.index(kind) if kind in _KINDS else 0, candidate.text.casefold())


def run_all(shell: Shell, texts: Iterable[str]) -> bool:
    """Executes texts in order, up to the first that fails."""
    return all(shell.run(text) for text in texts)
