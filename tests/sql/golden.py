"""Golden files: statements and what must come of them, in text that is also the reference (`docs/sql.md`).

A file has a title (`# …`), a few lines of prose, and steps. A step begins with a line that names it and ends
with an empty line; what is expected stands after `----`:

    sql [eventually|among]  statements, then `ok`, or rows under a line with the names of the columns, or an
                            error as `Unknown at 1:8: no column …`; of several statements the last one counts.
                            `eventually` asks again until it is so, `among`: there may be more rows
    produce TOPIC           records `key | value`, then maybe `| @milliseconds` and `| header=value`
    encode TOPIC            the same with values in JSON that are encoded with the newest schema of the topic
    register SUBJECT TYPE   a schema, `AVRO`, `JSON` or `PROTOBUF`
    topic NAME [newest]     records `key | value` that a plain read_committed consumer finds, in any order;
                            `newest` keeps the last one of each key, as a compacted topic does

Values are written as JSON, text without its quotes; NULL is null; `…` stands for any text. Rows may come in
any order unless the statement says ORDER BY.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, TopicAlreadyExists
from penstock.registry.client import RegistryClient, RegistrySettings
from penstock.registry.serdes import Decoder, Encoder
from penstock.testing import PenstockBroker
from tests.sql.serving import Answer, SqlClient
from tests.sql.written import Written

DIRECTORY = Path(__file__).parent / "golden"
WAIT_SECONDS = 90.0
_WORDS = ("sql", "produce", "encode", "register", "topic")
_ANY = "…"


@dataclass(frozen=True)
class Step:
    line: int
    """Of its first line in the file, from 1."""
    word: str
    arguments: tuple[str, ...]
    text: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Golden:
    path: Path
    title: str
    prose: str
    parts: tuple[Step | str, ...]
    """Steps, and the prose between them, in order."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(part for part in self.parts if isinstance(part, Step))


def read(path: Path) -> Golden:
    """ValueError with file and line if it is not in the form above."""
    lines = path.read_text().splitlines()
    if not lines or not lines[0].startswith("# "):
        raise ValueError(f"{path.name}:1: a golden file begins with `# ` and a title")
    parts: list[Step | str] = []
    number = 1
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        words = lines[number].split()
        end = number
        if words[0] in _WORDS and _is_header(words):
            # SQL may have empty lines before its `----`.
            if words[0] == "sql":
                end = next((i for i in range(number, len(lines)) if lines[i] == "----"), number)
                if end == number:
                    raise ValueError(f"{path.name}:{number + 1}: no `----` after the statements")
            while end < len(lines) and lines[end].strip():
                end += 1
            block = lines[number + 1 : end]
            middle = block.index("----") if "----" in block else len(block)
            parts.append(
                Step(
                    number + 1,
                    words[0],
                    tuple(words[1:]),
                    "\n".join(block[:middle]),
                    tuple(block[middle + 1 :]),
                )
            )
        else:
            while end < len(lines) and lines[end].strip():
                end += 1
            parts.append("\n".join(lines[number:end]))
        number = end
    prose = parts.pop(0) if parts and isinstance(parts[0], str) else ""
    assert isinstance(prose, str)
    return Golden(path, lines[0][2:].strip(), prose, tuple(parts))


def _is_header(words: list[str]) -> bool:
    """Prose may begin with one of the words too, but not in lower case with this number of arguments."""
    least, most = {"sql": (0, 1), "produce": (1, 1), "encode": (1, 1), "register": (2, 2), "topic": (1, 2)}[
        words[0]
    ]
    return least <= len(words) - 1 <= most


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"\s\|(?:\s|$)", line)]


def show(value: Any) -> str:
    """A value of a row as it stands in a golden file."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def fits(expected: str, found: str) -> bool:
    if _ANY not in expected:
        return expected == found or _same_json(expected, found)
    pattern = ".*".join(re.escape(piece) for piece in _narrow(expected).split(_ANY))
    return re.fullmatch(pattern, _narrow(found), re.DOTALL) is not None


def _narrow(text: str) -> str:
    """Without the spaces that JSON may have or not."""
    return re.sub(r"(?<=[:,]) (?=[\"\[{\d…])", "", text)


def _same_json(one: str, other: str) -> bool:
    if not one.startswith(("{", "[")):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def rows_fit(expected: list[list[str]], found: list[list[str]], *, ordered: bool) -> bool:
    if len(expected) != len(found):
        return False
    if ordered:
        return all(_row_fits(*pair) for pair in zip(expected, found))
    left = list(found)
    # Those without `…` first: they leave no choice.
    for row in sorted(expected, key=lambda row: any(_ANY in cell for cell in row)):
        place = next((i for i, other in enumerate(left) if _row_fits(row, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _row_fits(expected: list[str], found: list[str]) -> bool:
    return len(expected) == len(found) and all(fits(*pair) for pair in zip(expected, found))


class Mismatch(AssertionError):
    pass


class Runner:
    """Runs the steps of golden files against a server."""

    def __init__(self, client: SqlClient, broker: PenstockBroker, registry_url: str) -> None:
        self.client = client
        self.broker = broker
        self._registry_url = registry_url
        self._schema_types: dict[int, str] = {}
        self.found: list[str] = []
        """What the last step gave, in the form of a golden file."""

    @cached_property
    def registry(self) -> RegistryClient:
        return RegistryClient(RegistrySettings(url=self._registry_url))

    @cached_property
    def written(self) -> Written:
        return Written(self.broker.bootstrap)

    def run(self, golden: Golden) -> None:
        session: dict[str, dict[str, str]] = {"properties": {}, "variables": {}}
        for step in golden.steps:
            try:
                self.step(step, session)
            except (Mismatch, PenstockError, TimeoutError) as error:
                told = f"{golden.path.name}:{step.line}: {error}{self._failing()}"
                raise Mismatch(told) from None

    def _failing(self) -> str:
        """The errors of queries: often what a missing row is about."""
        queries = self.client.http.get("/queries").json()
        return "".join(f"\n{each['id']}: {each['error']}" for each in queries if each.get("error"))

    def step(self, step: Step, session: dict[str, dict[str, str]]) -> None:
        match step.word:
            case "sql":
                self._sql(step, session)
            case "produce":
                self._produce(step.arguments[0], self._records(step.text, encoder=None))
            case "encode":
                schema = self.registry.version(f"{step.arguments[0]}-value", "latest")
                encoder = Encoder(self.registry, schema)
                self._produce(step.arguments[0], self._records(step.text, encoder))
            case "register":
                subject, kind = step.arguments
                self.registry.register(subject, {"schemaType": kind, "schema": step.text})
            case "topic":
                self._topic(step)

    def _produce(self, topic: str, records: Iterable[dict[str, Any]]) -> None:
        try:
            self.broker.create_topic(topic)
        except TopicAlreadyExists:
            pass
        self.broker.produce(topic, list(records))

    def _records(self, text: str, encoder: Encoder | None) -> Iterable[dict[str, Any]]:
        for line in text.splitlines():
            key, value, *more = cells(line)
            data: bytes | None = None
            if value != "NULL":
                data = value.encode() if encoder is None else encoder.encode(json.loads(value))
            record: dict[str, Any] = {"key": None if key in ("NULL", "") else key.encode(), "value": data}
            for each in more:
                if each.startswith("@"):
                    record["timestamp"] = int(each[1:])
                else:
                    name, _, content = each.partition("=")
                    record.setdefault("headers", []).append((name, content.encode()))
            yield record

    def _sql(self, step: Step, session: dict[str, dict[str, str]]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            seen, asked = self.written.ends() if "eventually" in step.arguments else {}, time.monotonic()
            answers = self.client.run(step.text, **session)
            self.found = self._lines(answers)
            wrong = self._compare(step, answers)
            if wrong is None:
                for answer in answers:
                    _remember(answer, session)
                return
            if "eventually" not in step.arguments or time.monotonic() > deadline:
                raise Mismatch(wrong)
            self.written.wait(seen, max(1, 3 * (time.monotonic() - asked)))

    def _lines(self, answers: list[Answer]) -> list[str]:
        last = answers[-1]
        if last.error is not None:
            return [_error_text(last.error)]
        if last.columns is None:
            return ["ok" if not last.message else f"ok: {last.message}"]
        table = [[name for name, _ in last.columns], *([show(value) for value in row] for row in last.rows)]
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        return [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]

    def _compare(self, step: Step, answers: list[Answer]) -> str | None:
        """What is wrong, if something is."""
        last = answers[-1]
        expected = [line.rstrip() for line in step.expected]
        told = "\n".join(["expected:", *expected, "found:", *self.found])
        if last.error is not None:
            return None if fits("\n".join(expected), self.found[0]) else told
        if last.columns is None:
            if expected == ["ok"]:
                return None
            return None if fits("\n".join(expected), self.found[0]) else told
        if not expected or expected[0] == "ok":
            return told
        names = [name for name, _ in last.columns]
        if cells(expected[0]) != names:
            return told
        wanted = [_pad(cells(line), len(names)) for line in expected[1:]]
        found = [[show(value) for value in row] for row in last.rows]
        ordered = re.search(r"\border\s+by\b", step.text, re.IGNORECASE) is not None
        if "among" in step.arguments:
            found = [row for row in found if any(_row_fits(one, row) for one in wanted)]
        return None if rows_fit(wanted, found, ordered=ordered) else told

    # --- records of topics ------------------------------------------------------------------------------

    def _topic(self, step: Step) -> None:
        topic, newest = step.arguments[0], "newest" in step.arguments
        wanted = [cells(line) for line in step.expected or step.text.splitlines()]
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = self.records(topic, newest=newest)
            if rows_fit(wanted, found, ordered=False):
                return
            self.found = [" | ".join(row) for row in found]
            # More than expected will not become less, unless newer ones take their place.
            if time.monotonic() > deadline or (len(found) > len(wanted) and not newest):
                raise Mismatch(
                    "\n".join(["expected:", *(" | ".join(row) for row in wanted), "found:", *self.found])
                )
            time.sleep(0.05)

    def records(self, topic: str, *, newest: bool = False) -> list[list[str]]:
        """Keys and values, as text."""
        try:
            read = self.broker.consume(topic, isolation="read_committed")
        except PenstockError:
            return []
        rows = [[self._text(record.key), self._text(record.value)] for record in read]
        if not newest:
            return rows
        return [[key, value] for key, value in dict(map(tuple, rows)).items() if value != "NULL"]

    def _text(self, data: bytes | None) -> str:
        if data is None:
            return "NULL"
        if data[:1] == b"\0" and len(data) > 5:
            number = int.from_bytes(data[1:5], "big")
            if number not in self._schema_types:
                self._schema_types[number] = self.registry.by_id(number).schema_type
            return show(Decoder(self.registry, self._schema_types[number], "value").decode(data)[0])
        return data.decode()


def _pad(row: list[str], width: int) -> list[str]:
    """Of a row whose last cells are empty text, the ends are easily lost."""
    return row + [""] * (width - len(row))


def _error_text(error: dict[str, Any]) -> str:
    place = f" at {error['line']}:{error['column']}" if "line" in error else ""
    return f"{error['error']}{place}: {error['message']}"


def _remember(answer: Answer, session: dict[str, dict[str, str]]) -> None:
    """SET and DEFINE hold for what follows in the file, as in a shell."""
    for name in ("properties", "variables"):
        for key, value in answer.details.get(name, {}).items():
            if value is None:
                session[name].pop(key, None)
            else:
                session[name][key] = value


def names_made(golden: Golden) -> Counter[str]:
    """Streams, tables, functions and topics that a file makes or writes: no two files may share one."""
    made = names_in("\n".join(step.text for step in golden.steps if step.word == "sql"))
    made.update(step.arguments[0].casefold() for step in golden.steps if step.word in ("produce", "encode"))
    return made


def names_in(text: str) -> Counter[str]:
    """The same of statements."""
    found = re.findall(
        r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:STREAM|TABLE|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?`?([\w-]+)",
        text,
        re.IGNORECASE,
    )
    topics = re.findall(r"\btopic\s*=\s*'([^'$]+)'", text, re.IGNORECASE)
    return Counter({name.casefold() for name in (*found, *topics)})
