"""Runs protoc in a child process: a text becomes descriptors or `InvalidSchema`.

The child is started with the first schema, responds within a millisecond, and is replaced if it died or took
too long. It ends when its standard input closes, so it never outlives this process.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import MissingExtra
from penstock.registry.formats.schema import InvalidSchema

TIME_LIMIT = 20.0
"""Seconds for one text. A megabyte takes about one."""

_WORKER = Path(__file__).with_name("protoc_worker.py")
_BUNDLED = Path(__file__).with_name("protos")
_SAFE_NAME = re.compile(
    r"(?!/)(?:[A-Za-z0-9_@+=,~ -][A-Za-z0-9_.@+=,~ -]*/)*[A-Za-z0-9_@+=,~ -][A-Za-z0-9_.@+=,~ -]*\Z"
)

_PLACED = re.compile(r"(.+?):(\d+):(\d+): (.*)")
_MOST_ERRORS = 1 << 20

_NOISE = re.compile(r"^[IW]\d{4} |^WARNING: |: warning: ")


class Refused(InvalidSchema):
    """protoc's errors: (file, line and column from 0, message) for each error with a position."""

    def __init__(self, message: str, placed: list[tuple[str, tuple[int, int], str]]) -> None:
        super().__init__(message)
        self.placed = placed


def include_path() -> list[str]:
    """The include directories of every schema: google/protobuf and confluent, and google/type if it is
    installed.
    """
    found = [str(_BUNDLED)]
    spec = importlib.util.find_spec("grpc_tools")
    if spec is None or spec.origin is None:
        raise InvalidSchema(str(MissingExtra("a Protobuf schema", "grpcio-tools", "registry")))
    found.append(str(Path(spec.origin).parent / "_proto"))
    try:
        types = importlib.util.find_spec("google.type")
    except ModuleNotFoundError:
        types = None
    for place in (types.submodule_search_locations or ()) if types else ():
        if Path(place, "date.proto").exists():
            found.append(str(Path(place).parent.parent))
    return found


def is_well_known(name: str) -> bool:
    """Files of protobuf itself, which no reference may replace."""
    return name.startswith("google/protobuf/") and any(
        Path(place, name).exists() for place in _compiler.include() if _is_safe(name)
    )


def compile_files(files: Mapping[str, str], main: str) -> bytes:
    """The serialized FileDescriptorSet of `main` and all its imports, with source positions."""
    for name in files:
        if not _is_safe(name):
            raise InvalidSchema(f"{name[:200]!r} cannot be the name of a file to import")
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as directory:
        for name, text in files.items():
            path = Path(directory, "files", name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="")
            except OSError as error:
                raise InvalidSchema(
                    f"{name[:200]!r} cannot be the name of a file to import: {error}"
                ) from None
        code = _compiler.run(directory, main)
        if code != 0:
            raise _refused(Path(directory, "errors"), main)
        return Path(directory, "out").read_bytes()


def _is_safe(name: str) -> bool:
    return len(name) <= 500 and _SAFE_NAME.match(name) is not None


def _refused(path: Path, main: str) -> Refused:
    """The error message of protoc, truncated if it is a long list."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MOST_ERRORS).splitlines()
    lines = [line.removeprefix("files/") for line in lines if not _NOISE.search(line)]
    found = [match for line in lines if (match := _PLACED.match(line)) is not None]
    placed = [(m[1], (int(m[2]) - 1, int(m[3]) - 1), m[4]) for m in found]
    shown = list(dict.fromkeys(line.removeprefix(f"{main}:").strip() for line in lines))
    if len(shown) > 5:
        shown = [*shown[:5], "…"]
    return Refused(
        "Could not parse Protobuf - " + ("; ".join(shown)[:2000] or "protoc gave no reason"), placed
    )


class _Compiler:
    """One child at a time, one text at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._include: list[str] | None = None

    def include(self) -> list[str]:
        if self._include is None:
            self._include = include_path()
        return self._include

    def run(self, directory: str, main: str) -> int:
        request = json.dumps({"directory": directory, "main": main, "include": self.include()}) + "\n"
        with self._lock:
            for attempt in (1, 2):
                fresh = self._child is None
                child = self._start()
                try:
                    return self._ask(child, request.encode())
                except (BrokenPipeError, EOFError):
                    self.stop()
                    # An idle child may have been killed from outside; a new one was crashed by the text.
                    if fresh or attempt == 2:
                        raise InvalidSchema("Could not parse Protobuf - protoc failed on this text") from None
                except TimeoutError:
                    self.stop()
                    raise InvalidSchema(
                        f"Could not parse Protobuf - protoc took more than {TIME_LIMIT:.0f} seconds"
                    ) from None
        raise AssertionError("unreachable")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        return self._child

    def _ask(self, child: subprocess.Popen[bytes], request: bytes) -> int:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(request)
        child.stdin.flush()
        answer, deadline = b"", time.monotonic() + TIME_LIMIT
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            read = os.read(child.stdout.fileno(), 100)
            if not read:
                raise EOFError
            answer += read
        return int(answer)

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass


_compiler = _Compiler()
atexit.register(_compiler.stop)
os.register_at_fork(after_in_child=lambda: _compiler.__init__())  # type: ignore[misc]
