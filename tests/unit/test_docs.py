"""The pages tell the truth: tests, commands, make targets, files and links that they name exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from penstock.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def shell_lines(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def inline_commands(page: Path, program: str) -> list[str]:
    return re.findall(rf"`({program} [^`]+)`", page.read_text())


def functions_in(path: str) -> set[str]:
    tree = ast.parse(text_of(path))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    missing = [
        f"{path}::{name}"
        for path, name in TEST_NAME.findall(page.read_text())
        if not (ROOT / path).exists() or name not in functions_in(path)
    ]
    assert not missing


def test_every_row_of_the_behaviour_page_names_a_test() -> None:
    rows = [line for line in text_of("docs/behaviour.md").splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "| ---"))]
    assert promises
    without = [row for row in promises if not TEST_NAME.search(row)]
    assert not without


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    commands = [line for line in shell_lines(page) if line.startswith("make ")] + inline_commands(
        page, "make"
    )
    for command in commands:
        words = [word for word in shlex.split(command, comments=True)[1:] if "=" not in word]
        assert set(words) <= targets, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_penstock_command_that_a_page_names_exists(page: Path) -> None:
    # A line may be a pipe, of which any part may be ours.
    parts = [part.strip() for line in shell_lines(page) for part in re.split(r"(?<!\|)\|(?!\|)|&&", line)]
    for command in [part for part in parts if part.startswith("penstock ")] + inline_commands(
        page, "penstock"
    ):
        check_command(command)


def check_command(text: str) -> None:
    words = [word for word in shlex.split(text, comments=True)[1:] if word not in ("...", "…")]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z]+", words[0]):
        found = command.get_command(context, words[0])
        assert found is not None, f"{text!r}: no command {words[0]!r}"
        command = found
        words = words[1:]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    known |= {"--help"}
    options = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert options <= known, f"{text!r}: no option {sorted(options - known)}"
