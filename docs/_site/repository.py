"""A hook of MkDocs: files outside docs/ that pages link to become pages of the site.

In the repository links are relative paths, and stay so; for the site they are turned to these pages.
`repository/examples/at_least_once.py.md` shows the source of examples/at_least_once.py.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "repository/"
ALWAYS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=(?:#[^)\s]*)?(?: \"[^\"]*\")?\))")
_CODE = re.compile(r"^( *)(```|~~~).*?^\1\2|`[^`\n]+`", re.M | re.S)
_LANGUAGES = {".py": "python", ".sql": "sql", ".proto": "protobuf"}


def path_in_repository(page: str) -> str:
    """Where the source of a page of the site is: `spark.md` is docs/spark.md."""
    if page.startswith(PREFIX):
        path = page.removeprefix(PREFIX)
        source = path.removesuffix(".md")
        return source if (ROOT / source).is_file() else path
    return f"docs/{page}"


def page_in_site(path: str) -> str:
    """The page that shows a file or directory of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        path = posixpath.join(path, "README.md")
    return PREFIX + (path if path.endswith(".md") else f"{path}.md")


def targets(markdown: str, page: str) -> dict[str, str]:
    """The links of a page to files of the repository: as written, and where they lead."""
    found = {}
    directory = posixpath.dirname(path_in_repository(page))
    for link in _LINK.findall(_CODE.sub("", markdown)):
        path = posixpath.normpath(posixpath.join(directory, link))
        if (ROOT / path).exists():
            found[link] = path
    return found


def content(path: str) -> str:
    file = ROOT / path
    if path.endswith("README.md") and not file.exists():
        names = sorted(each.name for each in file.parent.iterdir() if each.is_file())
        return f"# {posixpath.dirname(path)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n~~~~{_LANGUAGES.get(file.suffix, 'text')}\n{text}~~~~\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    waiting = [page_in_site(path) for path in ALWAYS]
    for file in files.documentation_pages():
        waiting += map(page_in_site, targets(file.content_string, file.src_uri).values())
    while waiting:
        page = waiting.pop()
        if not page.startswith(PREFIX) or files.get_file_from_path(page) is not None:
            continue
        text = content(path_in_repository(page))
        files.append(File.generated(config, page, content=text))
        waiting += map(page_in_site, targets(text, page).values())
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    leads = targets(markdown, here)

    def lead(found: re.Match[str]) -> str:
        path = leads.get(found[1])
        return found[1] if path is None else posixpath.relpath(page_in_site(path), posixpath.dirname(here))

    return _LINK.sub(lead, markdown)
