"""What a Python function does, as a digest: two functions of one digest give the same for the same rows.

Bytecode, constants, defaults, attributes, closures and the globals that are named are in it, and the modules
that are used or imported: those that are not installed packages with their syntax trees, all that they
import, and the values of their globals. Line numbers, comments and file names are not. An installed package
counts by its name and version. What cannot be described is listed in `Described.unknown`: then the caller
has to compare something larger. Files, environment variables and services that a function reads while it
runs are not known at all.
"""

from __future__ import annotations

import copyreg
import hashlib
import sys
import types
from dataclasses import dataclass
from typing import Any

from penstock.pipelines.plans import python_modules as modules
from penstock.pipelines.plans.python_modules import FAILURES, Opaque, installed

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_BUILTINS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.MethodWrapperType,
)  # fmt: skip
_NO_DATA = ("py4j", "_thread", "logging", "pyspark.sql.session", "pyspark.core.context")
"""Modules whose objects are handles: locks, loggers, sessions, references into the JVM."""
_OF_CLASSES = frozenset(
    ("__module__", "__dict__", "__weakref__", "__doc__", "_abc_impl", "__firstlineno__",
     "__static_attributes__", "__slotnames__", "__annotations_cache__")
)  # fmt: skip
_MOST_VALUES = 200_000


@dataclass(frozen=True, slots=True)
class Described:
    """A function as far as it is known."""

    digest: str
    unknown: tuple[str, ...]
    """What it uses of which nothing certain can be said."""


def described(value: Any) -> Described:
    """A function, or an object whose methods are called; Opaque if nothing can be said about it."""
    description = _Description()
    try:
        said = description.of(value)
    except (RecursionError, *FAILURES) as error:
        raise Opaque(str(error)) from error
    text = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    return Described(text, tuple(sorted(description.unknown)))


class _Description:
    def __init__(self, unknown: set[str] | None = None) -> None:
        self.unknown = set() if unknown is None else unknown
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._imports = modules.Imports(self.unknown)

    def of(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return (type(value).__name__, repr(value))
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        if len(self._seen) > _MOST_VALUES:
            raise RecursionError("it has too many values")
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        try:
            return self._of_new(value)
        except FAILURES as error:
            return self._not_known(f"{type(value).__qualname__}: {error}")

    def _not_known(self, what: str) -> Any:
        self.unknown.add(what)
        return ("unknown",)

    def _of_new(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return (type(value).__name__, *(self.of(each) for each in value))
        if type(value) in (set, frozenset):
            # Each for itself: what was seen before must not depend on the order of a set.
            each_alone = (repr(_Description(self.unknown).of(each)) for each in value)
            return (type(value).__name__, *sorted(each_alone))
        if type(value) in (dict, types.MappingProxyType):
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
            code.co_freevars, code.co_cellvars, code.co_flags, code.co_argcount, code.co_posonlyargcount,
            code.co_kwonlyargcount, handlers,
        )  # fmt: skip

    def _function(self, function: types.FunctionType) -> Any:
        module = sys.modules.get(function.__module__ or "")
        if modules.of_own(function.__code__.co_filename):
            return ("function", function.__module__, function.__qualname__, self._around(function))
        package = installed(module)
        if package and function.__globals__ is vars(module) and "<" not in function.__qualname__:
            return ("function", package, function.__qualname__, self._around(function))
        used = modules.used_by(function)
        values = tuple((name, self.of(function.__globals__[name])) for name in used.globals)
        imported = tuple(self._imports.of(name) for name in used.imports)
        self.unknown.update(used.unknown)
        code = self.of(function.__code__)
        return ("function", code, self._around(function), values, imported)

    def _around(self, function: types.FunctionType) -> Any:
        """All that a function has beside its code and its globals."""
        cells = tuple(self.of(_content(cell)) for cell in function.__closure__ or ())
        defaults = (self.of(function.__defaults__), self.of(function.__kwdefaults__))
        return ("around", defaults, cells, self.of(dict(sorted(function.__dict__.items()))))

    def _class(self, kind: type) -> Any:
        module = sys.modules.get(kind.__module__)
        package = installed(module)
        if package and modules.attribute(module, kind.__qualname__) is kind:
            return ("class", package, kind.__qualname__)
        members = sorted((name, each) for name, each in vars(kind).items() if name not in _OF_CLASSES)
        members = [(name, each) for name, each in members if name != "__annotations__" or each]
        bases = tuple(self.of(each) for each in kind.__bases__)
        said = tuple((name, self.of(each)) for name, each in members)
        return ("class", kind.__qualname__, self.of(type(kind)), bases, said)

    def _module(self, module: types.ModuleType) -> Any:
        package = installed(module)
        if package:
            return ("module", package)
        # What it computed when it was imported, from a file for example, is in its globals only.
        values = tuple(
            (name, self._value_of(module, each))
            for name, each in sorted(vars(module).items())
            if not (name.startswith("__") and name.endswith("__"))
        )
        return ("module", self._imports.of_module(module), values)

    def _value_of(self, module: types.ModuleType, value: Any) -> Any:
        """A global of a module. Of its functions the code and what that names are known."""
        if isinstance(value, types.FunctionType) and value.__globals__ is vars(module):
            return self._around(value)
        return self.of(value)

    def _instance(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, _BUILTINS):
            owner = getattr(value, "__self__", None)
            owner = None if isinstance(owner, types.ModuleType) else owner
            return ("builtin", getattr(value, "__module__", None), value.__qualname__, self.of(owner))
        if any(f"{kind.__module__}.".startswith(f"{each}.") for each in _NO_DATA):
            return ("handle",)
        if kind.__module__ == "pyspark.core.broadcast":
            return ("broadcast", self.of(value.value))
        if kind.__module__ == "pyspark.sql.udf":  # its other attributes change when it is used
            return ("udf", self.of(value.func), str(value.returnType), value.evalType, value.deterministic)
        inside = getattr(value, "__dict__", None)
        attributes = self.of(dict(sorted(inside.items()))) if isinstance(inside, dict) else None
        return ("object", self.of(kind), attributes, self._reduced(value))

    def _reduced(self, value: Any) -> Any:
        """What an object holds beside its attributes, in a base class of C or __slots__."""
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(2)
        except Exception as error:  # noqa: BLE001 - code of others
            return self._not_known(f"{type(value).__qualname__}: {error}")
        if isinstance(reduced, str):
            return reduced
        items = (None if each is None else list(each) for each in reduced[3:5])
        return tuple(self.of(each) for each in (*reduced[:3], *items))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
