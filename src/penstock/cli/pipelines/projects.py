"""The project that a pipeline command is about, and what is wrong with it in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.cli.failure import CommandFailed
from penstock.errors import MissingExtra, PenstockError
from penstock.pipelines.project.project import Project, load_project
from penstock.pipelines.run.state import StateDirectory

project_argument = click.argument(
    "project", type=click.Path(path_type=Path), default=Path("."), required=False
)


@contextmanager
def one_line() -> Iterator[None]:
    """What a pipeline or its project gets wrong, as one line and exit code 1."""
    try:
        yield
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    except ModuleNotFoundError as error:
        raise CommandFailed(str(MissingExtra("the pipeline", error.name, "spark"))) from error


def open_project(where: Path) -> tuple[Project, StateDirectory]:
    project = load_project(where)
    return project, StateDirectory(project.state_directory, project.name)
