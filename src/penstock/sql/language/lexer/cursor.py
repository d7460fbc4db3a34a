"""Reads a statement token by token, and reports the token at which it becomes invalid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from penstock.sql.errors import BadSyntax, Place, did_you_mean
from penstock.sql.language.statements import Span
from penstock.sqltext.tokens import Token


class Cursor:
    """A cursor over `tokens[position:end]`; after the end there is a token of kind `end`."""

    def __init__(self, text: str, tokens: Sequence[Token], position: int = 0, end: int | None = None) -> None:
        self.text = text
        self.tokens = tokens
        self.position = position
        self.end = len(tokens) if end is None else end
        last = tokens[self.end - 1].end if self.end else 0
        self._end_token = Token("end", "", last, last)

    def peek(self, ahead: int = 0) -> Token:
        at = self.position + ahead
        return self.tokens[at] if at < self.end else self._end_token

    @property
    def done(self) -> bool:
        return self.position >= self.end

    def next(self) -> Token:
        token = self.peek()
        self.position += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether these words come next, in this order."""
        return all(self.peek(ahead).upper == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        if not self.at(*words):
            return False
        self.position += len(words)
        return True

    def take_symbol(self, symbol: str) -> bool:
        if not self.peek().is_symbol(symbol):
            return False
        self.position += 1
        return True

    def expect(self, *words: str) -> str:
        """Reads one of these words."""
        upper = self.peek().upper
        if upper not in words:
            self.fail(listed(words), words)
        self.position += 1
        return upper

    def expect_symbol(self, symbol: str, instead: str = "") -> Token:
        if not self.peek().is_symbol(symbol):
            self.fail(instead or symbol)
        return self.next()

    def name(self, what: str) -> tuple[str, Span]:
        """Reads `a`, `a.b` or a name in backticks; `what` is for the error message."""
        first = token = self.peek()
        if not token.names:
            hint = f" (names are quoted by backticks: `{token.text}`)" if token.kind == "string" else ""
            self.fail(what, hint=hint)
        self.position += 1
        parts = [token.text]
        while self.peek().is_symbol(".") and self.peek(1).names:
            self.position += 1
            token = self.next()
            parts.append(token.text)
        self.refuse_dash(first)
        return ".".join(parts), (first.start, token.end)

    def refuse_dash(self, first: Token) -> None:
        """Rejects `page-views` without backticks: it would be a name followed by a subtraction."""
        dash = self.peek()
        if not dash.is_symbol("-") or self.tokens[self.position - 1].end != dash.start:
            return
        end = dash.start
        ahead = 0
        while self.peek(ahead).start == end and (
            self.peek(ahead).kind in ("word", "number") or self.peek(ahead).is_symbol("-")
        ):
            end = self.peek(ahead).end
            ahead += 1
        raise BadSyntax(
            f"a name with a dash is quoted by backticks: `{self.text[first.start : end]}`",
            Place.of(self.text, first.start),
        )

    def finish(self, *words: str) -> None:
        """Checks that nothing follows; `words` are the alternatives for the message."""
        if not self.done:
            self.fail("the end of the statement" if not words else f"{listed(words)} or the end", words)

    def fail(self, expected: str, words: Iterable[str] = (), *, hint: str = "") -> NoReturn:
        token = self.peek()
        if token.kind == "end":
            raise BadSyntax(
                f"the statement ends where {expected} is expected{hint}", Place.of(self.text, token.start)
            )
        words = tuple(words)
        near = did_you_mean(token.text, words) or did_you_mean(
            token.text, [each.split()[0] for each in words]
        )
        near = near if token.kind == "word" else ""
        written = self.text[token.start : min(token.end, token.start + 40)]
        shown = f"`{written}`" if token.kind != "quoted" else written
        raise BadSyntax(f"expected {expected}, not {shown}{near}{hint}", Place.of(self.text, token.start))


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
