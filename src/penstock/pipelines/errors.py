"""Errors of pipelines; every message names the object and says what to do.

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
    """A position in a project's file; `file` is relative to the project."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class PipelineError(PenstockError):
    """The base class of errors of pipelines."""


class BadProject(PipelineError):
    """The spec file is missing, is not YAML, or has invalid values."""


class BadDefinition(PipelineError):
    """An invalid definition; `where` is its position."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class AlreadyRunning(PipelineError):
    """Another process runs this pipeline."""


class NotRunning(PipelineError):
    """No process runs this pipeline."""
