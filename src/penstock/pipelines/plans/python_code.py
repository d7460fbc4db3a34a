"""What a Python function does, as a digest: two functions of one digest give the same for the same rows.

Bytecode, constants, defaults, closures and the globals that are named are in it, and of modules that are not
installed packages their whole files; line numbers, comments and file names are not. An installed package
counts by its name and version.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
import types
from importlib import metadata
from pathlib import Path
from typing import Any

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_OWN = ("pyspark", "penstock")
"""Packages whose wrappers stand around functions: by name, as another release of them changes nothing."""
_OF_CLASSES = frozenset(
    ("__module__", "__dict__", "__weakref__", "__doc__", "_abc_impl", "__firstlineno__",
     "__static_attributes__")
)  # fmt: skip


class Opaque(Exception):
    """A value of which nothing certain can be said."""


def digest(value: Any) -> str:
    """Of a function, or of an object whose methods are called; Opaque if that cannot be determined."""
    try:
        said = _Description().of(value)
    except (RecursionError, AttributeError, TypeError, ValueError, OSError) as error:
        raise Opaque(str(error)) from error
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


class _Description:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return (type(value).__name__, repr(value))
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if isinstance(value, tuple | list):
            return (type(value).__name__, *(self.of(each) for each in value))
        if isinstance(value, set | frozenset):
            # Each for itself: what was seen before must not depend on the order of a set.
            return (type(value).__name__, *sorted(digest(each) for each in value))
        if isinstance(value, dict):
            return ("dict", *((self.of(key), self.of(each)) for key, each in value.items()))
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return ("method", self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, functools.partial):
            return ("partial", self.of(value.func), self.of(value.args), self.of(value.keywords))
        if isinstance(value, staticmethod | classmethod):
            return (type(value).__name__, self.of(value.__func__))
        if isinstance(value, property):
            return ("property", *(self.of(each) for each in (value.fget, value.fset, value.fdel)))
        return self._instance(value)

    def _code(self, code: types.CodeType) -> Any:
        constants = tuple(self.of(each) for each in code.co_consts)
        # An exception table decides which handler runs, and is not in the bytecode.
        handlers = getattr(code, "co_exceptiontable", b"")
        return (
            "code", sys.version_info[:2], code.co_code, constants, code.co_names, code.co_varnames,
            code.co_freevars, code.co_cellvars, code.co_flags, code.co_argcount, code.co_kwonlyargcount,
            handlers,
        )  # fmt: skip

    def _function(self, function: types.FunctionType) -> Any:
        cells = [_content(cell) for cell in function.__closure__ or ()]
        around = ("around", tuple(self.of(each) for each in cells))
        defaults = (self.of(function.__defaults__), self.of(function.__kwdefaults__))
        if _of_own(function.__code__.co_filename):
            return ("function", function.__module__, function.__qualname__, defaults, around)
        module = sys.modules.get(function.__module__ or "")
        installed = _installed(module)
        if installed and getattr(module, function.__name__, None) is function:
            return ("function", installed, function.__qualname__)
        named = sorted(_names(function.__code__) & function.__globals__.keys())
        values = tuple((name, self.of(function.__globals__[name])) for name in named)
        return ("function", self.of(function.__code__), defaults, around, values)

    def _class(self, kind: type) -> Any:
        module = sys.modules.get(kind.__module__)
        installed = _installed(module)
        if installed and getattr(module, kind.__name__, None) is kind:
            return ("class", installed, kind.__qualname__)
        members = sorted((name, each) for name, each in vars(kind).items() if name not in _OF_CLASSES)
        bases = tuple(self.of(each) for each in kind.__bases__)
        return ("class", kind.__qualname__, bases, tuple((name, self.of(each)) for name, each in members))

    def _module(self, module: types.ModuleType) -> Any:
        installed = _installed(module)
        if installed:
            return ("module", installed)
        source = getattr(module, "__file__", None)
        if source is None:
            raise Opaque(module.__name__)
        content = hashlib.sha256(Path(source).read_bytes()).hexdigest()
        return ("module", content, tuple(self._module_of(each) for each in vars(module).values()))

    def _module_of(self, value: Any) -> Any:
        """A module that another one imports, or has something from: it may be edited as well."""
        module = value if isinstance(value, types.ModuleType) else None
        name = getattr(value, "__module__", None)
        if module is None and isinstance(name, str):
            module = sys.modules.get(name)
        if module is None or getattr(module, "__file__", None) is None or _installed(module):
            return None
        return self.of(module)

    def _instance(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, _BUILTINS):
            return ("builtin", getattr(value, "__module__", None), value.__qualname__)
        inside = getattr(value, "__dict__", None)
        if isinstance(inside, dict):
            return ("object", self.of(kind), self.of(dict(sorted(inside.items()))))
        reduced = value.__reduce_ex__(2)
        if isinstance(reduced, str):
            return ("object", self.of(kind), reduced)
        return ("object", self.of(kind), tuple(self.of(each) for each in reduced[1:3]))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function or one inside it may use."""
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _names(each)
    return found


def _of_own(source: str) -> bool:
    homes = (Path(sys.modules[name].__file__ or "?").parent for name in _OWN if name in sys.modules)
    return any(Path(source).is_relative_to(home) for home in homes)


def _installed(module: types.ModuleType | None) -> str | None:
    """Name and version of a module of the standard library or of an installed package; None for others."""
    if module is None:
        return None
    package = module.__name__.partition(".")[0]
    if package in _OWN:
        return module.__name__
    if package in sys.stdlib_module_names and package != "__main__":
        return module.__name__
    source = getattr(module, "__file__", None)
    if source is None or not _among_packages(source):
        return None
    return f"{module.__name__} {_version(package)}"


def _among_packages(source: str) -> bool:
    paths = sysconfig.get_paths()
    return any(Path(source).is_relative_to(paths[each]) for each in ("purelib", "platlib"))


@functools.cache
def _version(package: str) -> str:
    try:
        names = metadata.packages_distributions().get(package, [package])
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return "?"
