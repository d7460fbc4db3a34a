"""A project on disk: Spark's `spark-pipeline.yml` and the files that it names, checked by Spark's own rules.

Read without PySpark, so that `penstock pipeline list` and `status` answer at once. `storage` holds
checkpoints, tables, the catalog, and in `_penstock` what Penstock keeps about the running pipeline.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.pipelines.errors import BadProject

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
REQUIRED = ("name", "storage")
ALLOWED = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
DEFAULT_CATALOG = "spark_catalog"
DEFAULT_DATABASE = "default"
_CODE = frozenset((".py", ".sql", ".yml", ".yaml", ".toml", ".ini", ".cfg"))
_DEEPEST = 4
"""How many directories down `find_projects` looks."""


@dataclass(frozen=True, slots=True)
class Project:
    """One pipeline project; `spec` is the absolute path of its spec file."""

    spec: Path
    name: str
    storage: str
    catalog: str
    database: str
    configuration: Mapping[str, str]
    globs: tuple[str, ...]

    @property
    def root(self) -> Path:
        return self.spec.parent

    @property
    def local_storage(self) -> Path | None:
        """The storage as a directory of this machine, or None when it is elsewhere (`s3://`, `hdfs://`)."""
        parts = urlsplit(self.storage)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def state_directory(self) -> Path:
        """The directory with the status of a running pipeline: in the storage, or next to the spec if that is
        remote.
        """
        storage = self.local_storage
        return storage / "_penstock" if storage else self.root / ".penstock"

    def under_storage(self, *parts: str) -> str:
        return "/".join((self.storage.rstrip("/"), *parts))

    def query_name(self, flow: str) -> str:
        """Stable over restarts: it names the consumer group whose lag is the flow's."""
        return f"{self.name}.{flow}"

    def files(self) -> list[Path]:
        """The definition files, each once, in the order of the globs and then of their names."""
        found: dict[Path, None] = {}
        for pattern in self.globs:
            for path in sorted(self.root.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts:
                    found.setdefault(path)
        return list(found)

    def content(self) -> dict[str, str]:
        """A hash of each file of the project, including the spec, by its path in the project."""
        hashes = {}
        for path in (self.spec, *self.files()):
            try:
                data = path.read_bytes()
            except OSError:
                continue  # an editor that replaces a file removes it for a moment
            hashes[self.relative(path)] = hashlib.sha256(data).hexdigest()
        return hashes

    def everything(self) -> str:
        """A hash of all code and settings in the project's directory, also of modules that no glob names. Not
        of its storage, of hidden files and of virtual environments."""
        found = hashlib.sha256()
        storage = self.local_storage.resolve() if self.local_storage else None
        for directory, names, files in os.walk(self.root):
            here = Path(directory)
            names[:] = sorted(
                name
                for name in names
                if not name.startswith(".")
                and name not in ("__pycache__", "node_modules")
                and (here / name).resolve() != storage
                and not (here / name / "pyvenv.cfg").exists()
            )
            for path in sorted(
                here / name for name in files if Path(name).suffix in _CODE and name[0] != "."
            ):
                found.update(f"{self.relative(path)}\0".encode())
                with contextlib.suppress(OSError), path.open("rb") as file:
                    found.update(hashlib.file_digest(file, "sha256").digest())
        return found.hexdigest()[:16]

    def relative(self, path: Path | str) -> str:
        try:
            return str(Path(path).resolve().relative_to(self.root.resolve()))
        except ValueError:
            return str(path)


def find_spec(where: Path) -> Path:
    """The spec: `where` itself, in that directory, or in the nearest directory above it."""
    if where.is_file():
        return where.resolve()
    if not where.exists():
        raise BadProject(
            f"no such file or directory: {where}; `penstock pipeline init NAME` creates a project"
        )
    directory = where.resolve()
    for candidate in (directory, *directory.parents):
        found = [candidate / name for name in SPEC_NAMES if (candidate / name).is_file()]
        if len(found) > 1:
            raise BadProject(f"{candidate} has both {SPEC_NAMES[0]} and {SPEC_NAMES[1]}: keep one of them")
        if found:
            return found[0]
    raise BadProject(
        f"no {SPEC_NAMES[0]} in {directory} or above it; `penstock pipeline init NAME` creates a project"
    )


def load_project(where: Path) -> Project:
    """The project of the spec found from `where`. BadProject has the error."""
    import yaml  # type: ignore[import-untyped]

    spec = find_spec(where)
    try:
        data = yaml.safe_load(spec.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise BadProject(f"{spec.name}{line}: no valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadProject(f"{spec.name}: no valid YAML: {error}") from error
    return parse_spec(spec, data)


@contextmanager
def spec_for_spark(project: Project) -> Iterator[Path]:
    """The spec for Spark's own command, with an absolute storage."""
    import yaml

    data = yaml.safe_load(project.spec.read_text(encoding="utf-8"))
    if data["storage"].strip() == project.storage:
        yield project.spec
        return
    # Next to it, because its includes are relative to it.
    copy = project.root / f".{project.spec.stem}-{os.getpid()}.yml"
    copy.write_text(yaml.safe_dump({**data, "storage": project.storage}), encoding="utf-8")
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def parse_spec(spec: Path, data: Any) -> Project:
    """A parsed spec as a Project. Its rules are Spark's; but `storage` may be relative."""
    if not isinstance(data, dict):
        raise BadProject(f"{spec.name}: must be a mapping with at least `name` and `storage`")
    for key in data:
        if key not in ALLOWED:
            raise BadProject(f"{spec.name}: unknown field '{key}'. Available: {', '.join(ALLOWED)}")
    for key in REQUIRED:
        if not isinstance(data.get(key), str) or not data[key].strip():
            raise BadProject(f"{spec.name}: the field '{key}' is required, as text")
    storage = data["storage"].strip()
    parts = urlsplit(storage)
    if not parts.scheme and not storage.startswith("/"):
        storage = (spec.parent / storage).resolve().as_uri()
    elif not parts.scheme or not parts.path.startswith("/"):
        raise BadProject(
            f"{spec.name}: storage '{storage}' must be a directory next to it, such as `storage`, or an "
            f"absolute URI, such as file://{spec.parent}/storage"
        )
    configuration = data.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise BadProject(f"{spec.name}: 'configuration' must be a mapping of Spark settings")
    for key, value in configuration.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadProject(f"{spec.name}: configuration: put the value of '{key}' into quotes: \"{value}\"")
    return Project(
        spec=spec,
        name=data["name"].strip(),
        storage=storage,
        catalog=data.get("catalog") or DEFAULT_CATALOG,
        database=data.get("database") or data.get("schema") or DEFAULT_DATABASE,
        configuration=configuration,
        globs=tuple(_globs(spec, data.get("libraries") or [])),
    )


def _globs(spec: Path, libraries: Any) -> Iterator[str]:
    entries: list[Any] = libraries if isinstance(libraries, list) else [None]
    for entry in entries:
        try:
            pattern = entry["glob"]["include"]
        except (TypeError, KeyError):
            pattern = None
        if not isinstance(pattern, str):
            raise BadProject(
                f"{spec.name}: each of 'libraries' looks like `- glob: {{include: transformations/**}}`"
            )
        if not glob.has_magic(pattern):
            yield pattern
        elif pattern.endswith("/**") and not glob.has_magic(pattern[:-3]):
            yield pattern + "/*"
        else:
            raise BadProject(f"{spec.name}: glob '{pattern}': give a file, or a folder that ends with /**")


def find_projects(under: Path) -> list[Path]:
    """The spec files in `under` and the directories below it."""
    found: list[Path] = []
    top = under.resolve()
    for directory, names, files in os.walk(top):
        depth = len(Path(directory).relative_to(top).parts)
        names[:] = (
            [] if depth >= _DEEPEST else sorted(n for n in names if n[:1] not in "._" and n != "node_modules")
        )
        found.extend(Path(directory) / name for name in SPEC_NAMES if name in files)
    return found
