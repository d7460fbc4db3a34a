"""Reduces an exception of Spark, a stream or a user's file to one line with the cause.

Spark nests errors: a StreamingQueryException contains the text of a Python worker's traceback, which contains
that of a JVM's. The innermost cause is the one that a user can act on; the rest is in the log.
"""

from __future__ import annotations

import re

_QUERY = re.compile(r"\n=== Streaming Query ===.*", re.DOTALL)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\.?")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
_JAVA_FRAME = re.compile(r"^\s+at |^\s*\.\.\. \d+ more|^Driver stacktrace:|^JVM stacktrace:", re.MULTILINE)
_PYTHON_CAUSE = re.compile(r"^(?P<type>[A-Za-z_][\w.]*): (?P<text>.*)$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"^Caused by: (?P<type>[\w.$]+): (?P<text>.*)$", re.MULTILINE)
_FIRST_JAVA = re.compile(r"^: (?P<type>[\w.$]+): (?P<text>.*)$", re.MULTILINE)
_NAMED = re.compile(r"\[[A-Z][A-Z_]+(?:\.[A-Z_]+)*\] ")
_LONGEST = 600

# Spark's errors that mean: the state on disk belongs to another query.
_STATE_DOES_NOT_FIT = re.compile(
    r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
    r"|STATE_STORE_SCHEMA|STATE_STORE_INVALID_|STATE_STORE_VALUE_SCHEMA_EVOLUTION"
    r"|sources in the checkpoint offsets and now there are"
)


def reason(error: BaseException | None) -> str:
    """Why a query has ended that should run."""
    return "it has ended without an error" if error is None else cause(error)


def cause(error: BaseException) -> str:
    """The cause in one line, without wrapping, stack traces and positions in generated plans."""
    message = getattr(error, "getMessage", None)
    text = None
    if callable(message):
        try:
            text = message()
        except Exception:  # noqa: BLE001 - the JVM may be gone already; str() has a copy
            text = None
    text = text or str(error)
    if type(error).__module__ == "builtins" and not isinstance(error, Exception | BaseExceptionGroup):
        return type(error).__name__
    line = shorten(text)
    if type(error).__module__ == "builtins" and type(error) is not RuntimeError:
        line = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return line or type(error).__name__


def shorten(text: str) -> str:
    """The innermost cause in an error text of Spark, as one line."""
    text = _QUERY.sub("", text)
    text = _STREAM_FAILED.sub("", text)
    if "Traceback (most recent call last)" in text:
        # What the worker raised is the last unindented `Type: text` of its traceback.
        inner = text[text.rindex("Traceback (most recent call last)") :]
        found = list(_PYTHON_CAUSE.finditer(inner))
        if found:
            last = found[-1]
            following = inner[last.end() :].lstrip("\n").split("\n\n")[0]
            kind = last["type"].rpartition(".")[2]
            words = last["text"] if _JAVA_FRAME.search(following) else f"{last['text']} {following}"
            text = words if kind in ("PySparkRuntimeError", "Exception") else f"{kind}: {words}"
    elif (first := _FIRST_JAVA.search(text)) and _NAMED.match(first["text"]):
        text = text[first.start("text") :]  # an error class of Spark is more specific than its cause
    elif found := list(_JAVA_CAUSE.finditer(text)):
        text = found[-1]["text"] if found[-1]["text"] else found[-1]["type"]
    elif first:
        text = text[first.start("text") :]
    frame = _JAVA_FRAME.search(text)
    if frame:
        text = text[: frame.start()]
    text = _SQLSTATE.sub("", text)
    text = re.sub(r";(\s*line \d+ pos \d+;)?\s*\n'?[A-Z~+].*", "", text, flags=re.DOTALL)  # the plan
    text = re.sub(r"\nSearch path: .*", "", text, flags=re.DOTALL)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0] + " …"


def state_does_not_fit(text: str) -> bool:
    """Whether the checkpoint belongs to another query, so that only a rebuild helps."""
    return bool(_STATE_DOES_NOT_FIT.search(text))
