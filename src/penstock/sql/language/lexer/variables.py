"""Replaces `${name}` in a statement by the value of the variable, also in strings and quoted names.

Not in comments and Python bodies. A value cannot end a statement and start another one, because the text is
split at its `;` before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from penstock.sql.errors import BadSyntax, Place, did_you_mean
from penstock.sql.language.lexer.texts import Expanded, Piece
from penstock.sqltext.tokens import Token

_VARIABLE = re.compile(r"\$\{([^}\n]*)\}")
_MAY_HOLD = ("variable", "string", "quoted")


def expand(text: str, tokens: Sequence[Token], variables: Mapping[str, str]) -> tuple[str, int]:
    """The text with the variables of these tokens replaced, and the end of the last token in it."""
    known = {name.casefold(): value for name, value in variables.items()}
    made: list[str] = []
    pieces: list[Piece] = []
    length = 0
    copied = 0

    def add(part: str, origin: int, as_it_is: bool) -> None:
        nonlocal length
        if part:
            pieces.append(Piece(length, origin, as_it_is))
            made.append(part)
            length += len(part)

    for token in tokens:
        if token.kind not in _MAY_HOLD:
            continue
        for found in _VARIABLE.finditer(text, token.start, token.end):
            name = found.group(1).strip()
            if name.casefold() not in known:
                raise BadSyntax(
                    f"no variable `{name}` is defined{did_you_mean(name, variables)} (DEFINE {name} = '…';)",
                    Place.of(text, found.start()),
                )
            add(text[copied : found.start()], copied, True)
            add(known[name.casefold()], found.start(), False)
            copied = found.end()
    end = tokens[-1].end
    if not pieces and not copied:
        return text, end
    add(text[copied:end], copied, True)
    last = length
    pieces.append(Piece(length, end, True))
    made.append(text[end:])
    return Expanded.of("".join(made), text, pieces), last
