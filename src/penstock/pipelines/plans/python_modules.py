"""Modules that Python functions use: imports in bytecode and syntax trees, and the sources of modules.

Nothing is imported for this: a module that a function imports when it runs is located as Python would locate
it, and its source is read.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import importlib
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

_OWN = ("pyspark", "penstock")
"""Packages whose wrappers stand around functions: by name, as another release of them changes nothing."""
_BY_NAME = frozenset(("exec", "eval", "globals", "__import__"))
"""Builtins that reach what neither bytecode nor a syntax tree names."""
_BY_ATTRIBUTE = frozenset(
    ("import_module", "__import__", "exec_module", "run_path", "run_module", "f_globals", "__globals__",
     "spec_from_file_location")
)  # fmt: skip


class Opaque(Exception):
    """A value of which nothing certain can be said."""


FAILURES = (Opaque, AttributeError, TypeError, ValueError, OSError, ImportError, LookupError)
"""Of a look at values and files that others have made."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the code of a function uses that is elsewhere."""

    globals: tuple[str, ...]
    imports: tuple[str, ...]
    """Full names of modules, and of what may be a module."""
    unknown: tuple[str, ...]


def used_by(function: types.FunctionType) -> Used:
    """The globals and modules that a function, or one inside it, may use."""
    names: set[str] = set()
    imports: set[str] = set()
    unknown: set[str] = set()
    package = _package(function.__globals__)
    for code in _codes(function.__code__):
        names |= set(code.co_names)
        before: list[dis.Instruction] = []
        for each in dis.get_instructions(code):
            if each.opname == "EXTENDED_ARG":
                continue
            if each.opname == "IMPORT_NAME":
                try:
                    imports |= _imported(each, before[-2:], package)
                except Opaque as error:
                    unknown.add(str(error))
            elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in _BY_NAME:
                unknown.add(f"{function.__qualname__} calls {each.argval}")
            elif each.argval in _BY_ATTRIBUTE and isinstance(each.argval, str):
                unknown.add(f"{function.__qualname__} uses {each.argval}")
            before.append(each)
        if {"sys", "modules"} <= set(code.co_names):
            unknown.add(f"{function.__qualname__} uses sys.modules")
    found = sorted(names & function.__globals__.keys())
    return Used(tuple(found), tuple(sorted(imports)), tuple(unknown))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _imported(at: dis.Instruction, before: list[dis.Instruction], package: str) -> set[str]:
    """What an instruction imports; the two before it load how many dots there are, and the names."""
    level, names = (each.argval for each in before)
    if not isinstance(level, int) or not (names is None or isinstance(names, tuple)):
        raise Opaque(f"import of {at.argval}")
    return set(_names(_absolute(str(at.argval), level, package), names or ()))


def _names(module: str, names: tuple[str, ...]) -> Iterator[str]:
    if module:
        yield module
    yield from (f"{module}.{name}" for name in names if name != "*")


def _absolute(name: str, level: int, package: str) -> str:
    if not level:
        return name
    above = package.split(".")[: len(package.split(".")) - level + 1]
    if not package or not above:
        raise Opaque(f"relative import of {name or '.'}")
    return ".".join((*above, *([name] if name else ())))


def _package(space: dict[str, Any]) -> str:
    """The package that relative imports of a module begin at."""
    package = space.get("__package__")
    if isinstance(package, str):
        return package
    name = str(space.get("__name__", ""))
    return name if "__path__" in space else name.rpartition(".")[0]


class Imports:
    """Sources of modules, each said once with all that it imports; `unknown` gets what is not found."""

    def __init__(self, unknown: set[str]) -> None:
        self._unknown = unknown
        self._said: dict[str, ModuleSpec] = {}
        importlib.invalidate_caches()

    def of_module(self, module: types.ModuleType) -> Any:
        """A module that has been imported. `__main__` has no name that others could find it by."""
        spec = getattr(module, "__spec__", None)
        if spec is not None and module.__name__ != "__main__":
            return self.of(module.__name__)
        source = getattr(module, "__file__", None)
        if source is None:
            raise Opaque(f"module {module.__name__} has no file")
        text = Path(source).read_text(encoding="utf-8")
        return ("source", self._source(module.__name__, text, _package(vars(module))))

    def of(self, name: str) -> Any:
        """A module by its full name; of `package.name`, what is no module is in the package."""
        said: list[Any] = []
        try:
            self._add(name, said)
        except (*FAILURES, SyntaxError) as error:
            self._unknown.add(f"module {name}: {error}")
        return tuple(said)

    def _add(self, name: str, said: list[Any]) -> None:
        parent: ModuleSpec | None = None
        for at in range(1, name.count(".") + 2):
            each = ".".join(name.split(".")[:at])
            known = each in self._said
            spec = self._said[each] if known else self._found(each, parent)
            if spec is None:
                if parent is None:
                    self._unknown.add(f"module {each} is not found")
                said.append(each)
                return
            package = _installed_by(each, spec.origin if spec.has_location else None)
            if package is not None:
                said.append(package)
                return
            if not known:
                self._said[each] = spec
                said.append((each, self._content(each, spec)))
            parent = spec

    def _found(self, name: str, parent: ModuleSpec | None) -> ModuleSpec | None:
        """As Python's import finds it, without importing it or its package."""
        if parent is not None and parent.submodule_search_locations is None:
            return None
        path = None if parent is None else list(parent.submodule_search_locations or ())
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        loaded = sys.modules.get(name)
        return getattr(loaded, "__spec__", None)

    def _content(self, name: str, spec: ModuleSpec) -> Any:
        if spec.origin is None or not spec.has_location:
            return "a package without a file" if spec.submodule_search_locations else self._no_source(name)
        get_source = getattr(spec.loader, "get_source", None)
        text = get_source(name) if get_source is not None else None
        if text is None:
            self._no_source(name)
            return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        return self._source(name, text, package)

    def _no_source(self, name: str) -> str:
        self._unknown.add(f"module {name} has no source")
        return name

    def _source(self, name: str, text: str, package: str) -> Any:
        tree = ast.parse(text)
        imports: dict[str, None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports.update((each.name, None) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = _absolute(node.module or "", node.level, package)
                imports.update((each, None) for each in _names(module, tuple(a.name for a in node.names)))
            elif isinstance(node, ast.Name) and node.id in _BY_NAME:
                self._unknown.add(f"module {name} uses {node.id}")
            elif isinstance(node, ast.Attribute) and (
                node.attr in _BY_ATTRIBUTE
                or (node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys")
            ):
                self._unknown.add(f"module {name} uses {node.attr}")
        digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        return (digest, *(self.of(each) for each in imports))


# Installed packages


def of_own(source: str) -> bool:
    """Whether a file is one of Spark's or Penstock's."""
    homes = (Path(sys.modules[name].__file__ or "?").parent for name in _OWN if name in sys.modules)
    return any(Path(source).is_relative_to(home) for home in homes)


def installed(module: types.ModuleType | None) -> str | None:
    """Name and version of a module of the standard library or of an installed package; None for others."""
    return None if module is None else _installed_by(module.__name__, getattr(module, "__file__", None))


def _installed_by(name: str, source: str | None) -> str | None:
    package = name.partition(".")[0]
    if package in _OWN:
        return name
    if source is not None and _is_in(source, _homes_of_packages()):
        return f"{name} {_version(package)}"
    # A file of a project can have the name of a module of the library, and comes before it.
    if package in sys.stdlib_module_names and package != "__main__":
        return name if source is None or _is_in(source, _homes_of_library()) else None
    return None


def attribute(module: types.ModuleType | None, name: str) -> Any:
    found: Any = module
    for each in name.split("."):
        found = getattr(found, each, None)
    return found


def _is_in(source: str, homes: tuple[str, ...]) -> bool:
    return any(Path(source).is_relative_to(each) for each in homes)


@functools.cache
def _homes_of_packages() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return (paths["purelib"], paths["platlib"], *site.getsitepackages(), *user)


@functools.cache
def _homes_of_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (paths["stdlib"], paths["platstdlib"])


@functools.cache
def _version(package: str) -> str:
    try:
        names = metadata.packages_distributions().get(package, [package])
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return "?"
