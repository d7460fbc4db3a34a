"""Completion in a statement: keywords, names of relations, columns, topics and queries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.sql.language.lexer.keywords import FIRST_WORDS, KEYWORDS
from penstock.sqltext.identifiers import quoted

_WORD = re.compile(r"(?:(\w+|`[^`]*`)\.)?(`[^`]*|[\w$]*)\Z")
_WORDS = re.compile(r"`[^`]*`|\w+|;")
_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")
_RELATION_AFTER = frozenset(
    ("FROM", "JOIN", "INTO", "DESCRIBE", "DESC", "STREAM", "TABLE", "EXTENDED", "EXISTS")
)
_QUERY_AFTER = frozenset(["PAUSE", "RESUME", "TERMINATE", "QUERY", "EXPLAIN"])
_SHOWN = ("TOPICS", "STREAMS", "TABLES", "QUERIES", "FUNCTIONS", "VARIABLES", "PROPERTIES")
_OWN_COLUMNS = ("__key", "__partition", "__offset", "__timestamp", "__headers")


@dataclass(frozen=True, slots=True)
class Known:
    """The names that the server has returned."""

    relations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Their columns, by name."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()

    @classmethod
    def of(cls, relations: Any, queries: Any) -> Known:
        found = relations.get("relations", []) if isinstance(relations, dict) else []
        return cls(
            {each["name"]: tuple(column[0] for column in each.get("columns", ())) for each in found},
            {each["name"]: str(each.get("kind", "")) for each in found},
            tuple(relations.get("topics", ())) if isinstance(relations, dict) else (),
            tuple(each["id"] for each in queries) if isinstance(queries, list) else (),
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    text: str
    start: int
    """The start of the replaced text, relative to the cursor: 0 or negative."""
    kind: str


def candidates(before: str, known: Known) -> Iterator[Candidate]:
    """The completions of the word that ends at the cursor."""
    found = _WORD.search(before)
    assert found is not None
    owner, word = found.group(1), found.group(2)
    start = -len(word)
    words = _WORDS.findall(before[: found.start()])
    statement = words[len(words) - words[::-1].index(";") :] if ";" in words else words
    upper = [each.upper() for each in statement]
    if owner is not None:
        yield from _columns_of(owner, before, known, word, start)
        return
    last = upper[-1] if upper else ""
    if not upper:
        yield from _matching(FIRST_WORDS, word, start, "keyword")
        return
    if last in ("SHOW", "LIST"):
        yield from _matching(_SHOWN, word, start, "keyword")
        return
    if last in _QUERY_AFTER:
        yield from _matching(known.queries, word, start, "query")
    if last in _RELATION_AFTER:
        for name, kind in known.kinds.items():
            yield from _matching((name,), word, start, kind)
        if last in ("FROM", "JOIN"):
            there = {name.casefold() for name in known.relations}
            topics = [topic for topic in known.topics if topic.casefold() not in there]
            yield from _matching(topics, word, start, "topic")
    else:
        yield from _columns_in(before, known, word, start)
    if not word.startswith("`") and word:
        yield from _matching(KEYWORDS, word, start, "keyword")


def _columns_of(owner: str, text: str, known: Known, word: str, start: int) -> Iterator[Candidate]:
    """After `a.`: columns of the relation with this name or alias."""
    owner = owner.strip("`").casefold()
    for name, columns in known.relations.items():
        alias = re.search(rf"(?i)`?{re.escape(name)}`?\s+(?:AS\s+)?`?{re.escape(owner)}`?\b", text)
        if name.casefold() == owner or alias:
            yield from _matching((*columns, *_OWN_COLUMNS), word, start, "column")
            return


def _columns_in(text: str, known: Known, word: str, start: int) -> Iterator[Candidate]:
    """Columns of the relations in the text; of all relations if it has none yet."""
    mentioned = {each.strip("`").casefold() for each in _WORDS.findall(text)}
    named = [columns for name, columns in known.relations.items() if name.casefold() in mentioned]
    if not word and not named:
        return
    chosen = named or list(known.relations.values())
    yield from _matching(dict.fromkeys(each for columns in chosen for each in columns), word, start, "column")
    if named or word.startswith("__"):
        yield from _matching(_OWN_COLUMNS if word.startswith("_") else (), word, start, "column")


def _matching(names: Iterable[str], word: str, start: int, kind: str) -> Iterator[Candidate]:
    wanted = word.lstrip("`").casefold()
    for name in names:
        if name.casefold().startswith(wanted):
            yield Candidate(_written(name, word), start, kind)


def _written(name: str, word: str) -> str:
    """Keywords in the case of their typed start; names in backticks if necessary."""
    if word.startswith("`") or not _PLAIN.match(name):
        return quoted(name)
    if name.isupper() and word and word == word.lower():
        return name.lower()
    return name
