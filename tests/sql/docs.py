"""The page `docs/sql.md`, made from the table of statements and the golden files: `python -m tests.sql.docs`.

What stands there has been run: a statement of a golden file, and what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.sql.language.lexer.keywords import OPTIONS, STATEMENTS
from penstock.sql.language.properties import PROPERTIES, SPARK_SETTINGS
from tests.sql import golden
from tests.sql.golden import Golden, Step

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"

# Every golden file stands in one of the sections.
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Streams", ("create_stream", "implicit_streams", "create_stream_as", "partition_by", "insert")),
    ("Formats", ("formats_text", "formats_registry", "poison", "evolving_schemas")),
    ("Tables", ("create_table", "create_table_as", "tables_delta")),
    ("Asking", ("push",)),
    ("Windows", ("windows_tumbling", "windows_hopping", "windows_session", "windows_grace")),
    ("Patterns", ("patterns",)),
    ("Joins", ("joins_stream_stream", "joins_stream_table", "joins_table_table")),
    ("Functions", ("functions_spark", "functions_python")),
    ("Running", ("show", "queries", "replace", "drop", "variables", "errors")),
)

INTRO = golden.DIRECTORY / "intro.md"


def page() -> str:
    parts = [INTRO.read_text()]
    for statement in STATEMENTS:
        parts.append(f"- **{statement.name}**: {statement.meaning}\n\n  ```\n  {statement.syntax}\n  ```\n")
    parts.append("## Options\n\nThose of `WITH`; text in quotes, numbers with or without.\n")
    parts.append(table("option", OPTIONS))
    parts.append(
        "## Properties\n\n`SET 'name' = 'value'`, for statements that follow; a query keeps those with which"
    )
    parts.append("it was made.\n")
    parts.append(table("property", PROPERTIES))
    listed = ", ".join(f"`{each}`" for each in sorted(SPARK_SETTINGS))
    parts.append(f"Settings of Spark that change how a query is computed are properties, too: {listed}.\n")
    parts.append(
        "All others of Spark's (`spark.…`) need the role `admin`, a server that was started with "
        "`--allow-python-functions`, and Alter on the cluster where [ACLs](sql-server.md#users-and-acls) "
        "count: some have Spark load a class, open a connection or read a file.\n"
    )
    for title, names in SECTIONS:
        parts.append(f"## {title}\n")
        parts.extend(section(golden.read(golden.DIRECTORY / f"{name}.test")) for name in names)
    return "\n".join(parts)


def table(what: str, rows: Mapping[str, str]) -> str:
    lines = [
        f"| {what} | meaning |",
        "| --- | --- |",
        *(f"| `{n}` | {meaning} |" for n, meaning in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def section(file: Golden) -> str:
    parts = [f"### {file.title}\n", file.prose + "\n"]
    for part in file.parts:
        parts.append(part + "\n" if isinstance(part, str) else shown(part))
    return "\n".join(parts)


def shown(step: Step) -> str:
    """A step as a reader sees it."""
    match step.word:
        case "sql":
            expected = [line.rstrip() for line in step.expected]
            block = f"```sql\n{step.text}\n```\n"
            if expected and expected[0].startswith("ok"):
                return block
            return f"{block}\n```\n{text(expected)}\n```\n"
        case "produce" | "encode":
            topic = step.arguments[0]
            return f"Records come into `{topic}` (key and value):\n\n```\n{step.text}\n```\n"
        case "register":
            subject, kind = step.arguments
            return f"The registry gets a schema `{subject}` ({kind}):\n\n```\n{step.text}\n```\n"
        case _:
            topic = step.arguments[0]
            of = "The newest records" if "newest" in step.arguments else "The records"
            return f"{of} of the topic `{topic}` (key and value):\n\n```\n{step.text}\n```\n"


def text(expected: list[str]) -> str:
    """Rows in columns of one width; an error as the shell tells it."""
    return "\n".join(expected)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
