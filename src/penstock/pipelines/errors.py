"""What can be wrong with a pipeline, as types; every message names the thing and what to do.

PenstockError
└── PipelineError
    ├── BadProject          the spec file, or what it points at
    ├── BadDefinition       a definition in a .py or .sql file; knows the file and the line
    ├── AlreadyRunning      another process runs this pipeline
    └── NotRunning          nobody does
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a project's file; `file` is relative to the project."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class PipelineError(PenstockError):
    """The root of what running a pipeline raises."""


class BadProject(PipelineError):
    """The spec file is missing, is not YAML, or says what cannot be."""


class BadDefinition(PipelineError):
    """A definition that cannot be used; `where` is its place."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class AlreadyRunning(PipelineError):
    """Another process runs this pipeline."""


class NotRunning(PipelineError):
    """No process runs this pipeline."""
