"""Every command and program of the pages is run by a test, or is listed with the reason why not."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests import doc_blocks
from tests.doc_blocks import COMMANDS, NOT_RUN, PAGES, PROGRAMS, ROOT, RUN_BY, Block, blocks, commands, reason


@dataclass(frozen=True)
class Call:
    """A call in a test file."""

    name: str
    arguments: int
    texts: tuple[str, ...]
    """The arguments that are literal text."""


@cache
def calls(path: str) -> list[Call]:
    found = []
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            values = [each.value for each in node.args if isinstance(each, ast.Constant)]
            texts = tuple(value for value in values if isinstance(value, str))
            found.append(Call(name, len(node.args), texts))
    return found


def runs(call: Call, block: Block, unit: str) -> bool:
    """Whether the call takes this command or program from the page, for its test to run."""
    of_another = any(text in PAGES and text != block.page for text in call.texts)
    if of_another:
        return False
    match call.name:
        case "commands":
            return block.language in COMMANDS and (call.arguments == 1 or block.section in call.texts)
        case "programs":
            return block.language in PROGRAMS
        case "program":
            return call.texts[:1] == (block.page,) and call.texts[1] in unit
    return False


def unproved(block: Block) -> list[str]:
    """What of a block neither runs nor has a reason."""
    tests = RUN_BY.get((block.page, "sh" if block.language in COMMANDS else block.language), ())
    every = [call for test in tests for call in calls(test)]
    return [
        unit
        for unit in block.units
        if reason(block.page, unit) is None and not any(runs(call, block, unit) for call in every)
    ]


@pytest.mark.promise(
    "docs", "A test runs every command and program of the pages, or a list says why none can"
)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_program_of_a_page_is_run_or_has_a_reason(page: str) -> None:
    found = [(block.line, unit) for block in blocks(page, *COMMANDS, *PROGRAMS) for unit in unproved(block)]
    assert not found, "add a test to tests/doc_blocks.py: RUN_BY, or a reason: NOT_RUN"


@pytest.mark.parametrize("page", PAGES)
def test_a_block_of_commands_says_that_it_is_one(page: str) -> None:
    for block in blocks(page, "", "text"):
        lines = block.text.splitlines()
        # The reference of the commands shows what `--help` prints.
        assert page == "docs/cli.md" or not any(line.startswith(("$ ", "penstock ")) for line in lines), block


def test_no_reason_is_left_of_a_block_that_has_gone() -> None:
    for page, reasons in NOT_RUN.items():
        units = [unit for block in blocks(page, *COMMANDS, *PROGRAMS) for unit in block.units]
        assert [begins for begins in reasons if not any(unit.startswith(begins) for unit in units)] == [], (
            page
        )


def test_every_test_that_runs_a_page_has_something_to_run() -> None:
    for page, language in RUN_BY:
        languages = COMMANDS if language == "sh" else (language,)
        units = [unit for block in blocks(page, *languages) for unit in block.units]
        assert any(reason(page, unit) is None for unit in units), page


def test_a_command_that_is_neither_run_nor_listed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.md").write_text(
        "```sh\nmake test\npenstock topics list \\\n  --json\n```\n\n"
        "```console\n$ penstock acls list\nnone\n```\n"
        "```python\nprint(1)\n```\n"
    )
    monkeypatch.setattr(doc_blocks, "ROOT", tmp_path)
    found = [unit for block in blocks("new.md") for unit in unproved(block)]
    assert [" ".join(unit.split()) for unit in found] == [
        "penstock topics list --json",
        "penstock acls list",
        "print(1)",
    ]
    assert len(commands("new.md")) == 2
