"""The pages tell the truth: tests, commands, make targets, files and links that they name exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest

from penstock.cli.main import cli
from penstock.config.properties import parse_properties
from tests.promises import PAGE, page_of, read_promises

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def shell_lines(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def inline_commands(page: Path, program: str) -> list[str]:
    return re.findall(rf"`({program} [^`]+)`", page.read_text())


def blocks_of(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse(text_of(path))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.promise("docs", "The tests, commands, make targets and links that a page names exist")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    missing = [
        f"{path}::{name}"
        for path, name in TEST_NAME.findall(page.read_text())
        if not (ROOT / path).exists() or name not in functions_in(path)
    ]
    assert not missing


def prose_of(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"^( *)```.*?^\1```|`[^`\n]+`", "code", page.read_text(), flags=re.M | re.S)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.promise("docs", "The tests, commands, make targets and links that a page names exist")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    wrong = []
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?(?: \"[^\"]*\")?\)", prose_of(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(f"{path}#{anchor}")
    assert not wrong


@pytest.mark.promise("docs", "Every page is in the site's navigation and in the index")
def test_every_page_is_in_the_navigation_of_the_site_and_in_the_index() -> None:
    names = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert names - set(re.findall(r"([\w-]+\.md)$", text_of("mkdocs.yml"), re.M)) == set()
    assert names - set(re.findall(r"\]\(([\w-]+\.md)\)", text_of("docs/index.md"))) == {"index.md"}


def test_every_extra_is_on_the_page_on_installing() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`[^|]*) \|", text_of("docs/install.md"), re.M)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    # What `make setup` and `make docs` install in a checkout.
    assert set(extras) - named == {"dev", "docs"}


# Where tests are the subject of a page.
ON_TESTS = {"CONTRIBUTING.md", "CHANGELOG.md", "README.md", "behaviour.md", "testing.md", "dependencies.md"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name
)
def test_a_page_for_users_names_promises_and_not_files_of_tests(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.S)
    named = re.findall(r"`(tests/[^`]*\.py[^`]*)`", text)
    assert page.name in ON_TESTS or not named


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_package_is_on_the_page_that_says_where_things_are(page: str) -> None:
    source = ROOT / "src" / "penstock"
    packages = {path.parent.name for path in source.rglob("__init__.py")} - {source.name}
    named = {part for text in re.findall(r"`([\w/]+)`", text_of(page)) for part in text.split("/")}
    assert packages - named == set()


@pytest.mark.promise("docs", "The tests, commands, make targets and links that a page names exist")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    commands = [line for line in shell_lines(page) if line.startswith("make ")] + inline_commands(
        page, "make"
    )
    for command in commands:
        words = [word for word in shlex.split(command, comments=True)[1:] if "=" not in word]
        assert set(words) <= targets, command


@pytest.mark.promise("docs", "The tests, commands, make targets and links that a page names exist")
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


@pytest.mark.promise("docs", "Python code blocks compile; JSON and properties blocks can be parsed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_python_json_and_properties_can_be_read(page: Path) -> None:
    for block in blocks_of(page, "python"):
        compile(block, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for block in blocks_of(page, "json"):
        json.loads(block)
    for block in blocks_of(page, "properties"):
        settings = parse_properties(block)
        lines = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        assert len(settings) == len(lines), "each line sets one name"
        assert all(value and re.fullmatch(r"[\w.>-]+", name) for name, value in settings.items()), settings


@pytest.mark.promise(
    "docs", "This page is generated from the markers of the tests; an invalid marker is an error"
)
def test_the_page_of_promises_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_of(read_promises()), "run: python -m tests.promises"
