"""Kafka's FileStreamSource and FileStreamSink: lines of a file to a topic, records of topics to a file.

The source follows a file that grows, is rotated or is truncated (`followed_files`): it reads the rest of the
old file first, and waits for the end of an incomplete line. The sink never leaves a partly written line.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from penstock.connect.api import (
    STRING_SCHEMA,
    ConfigType,
    ConnectError,
    Field,
    Importance,
    OffsetsReader,
    Range,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    TopicPartition,
)
from penstock.connect.connectors.followed_files import HEAD, FileIdentity, reopen
from penstock.connect.converters.primitive import text_of

_CHUNK = 1 << 20
_MOST_LINE = 64 << 20
_WAIT_SECONDS = 0.1


class FileStreamSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._path = config["file"]
        self._topic = config["topic"]
        self._batch = int(config.get("batch.size") or 2000)
        self._partition = {"filename": self._path}
        found = offsets_reader.offset(self._partition) or {}
        self._position = int(found.get("position", 0))
        self._identity = FileIdentity.in_offset(found)
        self._file: BinaryIO | None = None
        self._rest = b""
        self._lines: list[bytes] = []
        self._next = 0

    def poll(self) -> list[SourceRecord] | SourceBatch:
        if self._next >= len(self._lines) and not self._read():
            time.sleep(_WAIT_SECONDS)
            return []
        lines = self._lines[self._next : self._next + self._batch]
        self._next += len(lines)
        self._position += sum(map(len, lines)) + len(lines)
        whole = b"\n".join(lines)
        texts = whole.decode("utf-8", "replace").split("\n")
        if b"\r" in whole:
            texts = [text.removesuffix("\r") for text in texts]
        return SourceBatch(
            self._topic,
            texts,
            STRING_SCHEMA,
            source_partition=self._partition,
            source_offset={
                "position": self._position,
                **({} if self._identity is None else self._identity.fields()),
            },
        )

    def _read(self) -> bool:
        """Read more complete lines. Returns whether there are any."""
        if self._file is None and not self._open():
            return False
        assert self._file is not None and self._identity is not None
        if not self._identity.begins(self._file):
            self._close()  # the file was truncated and written again
            return False
        data = self._file.read(_CHUNK)
        if not data and self._is_over():
            data = self._file.read(_CHUNK)  # what was written in between
            if not data:
                self._rotate()
        if not data:
            return False
        if self._identity.size < HEAD:
            self._identity = FileIdentity.of(self._file)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _MOST_LINE:
            raise ConnectError(f"{self._path} has a line of more than {_MOST_LINE} bytes at {self._position}")
        self._lines, self._next = lines, 0
        return bool(lines)

    def _open(self) -> bool:
        path = Path(self._path)
        try:
            file = reopen(path, self._identity, self._position) if self._identity is not None else None
            if file is None:
                file = open(path, "rb")
                if self._identity is not None or self._position > os.fstat(file.fileno()).st_size:
                    self._position = 0  # another file has this name now
        except FileNotFoundError:
            return False  # the file may still be created, as in Kafka
        except OSError as error:
            raise RetriableError(f"{self._path} cannot be read: {error.strerror}") from error
        file.seek(self._position)
        self._file, self._rest, self._identity = file, b"", FileIdentity.of(file)
        return True

    def _is_over(self) -> bool:
        """At the end: whether another file has the name, or this one was truncated.

        A new file without content is not in use yet: its writer may still have the old one open.
        """
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            return there.st_size > 0
        return there.st_size < self._file.tell()

    def _rotate(self) -> None:
        """Continue with the file that has the name now: from its start, unless it is a copy of this one."""
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        if mine.st_nlink and mine.st_size >= self._position:
            self._position, self._identity = 0, None  # read to its end, and it has another name now
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""

    def stop(self) -> None:
        self._close()


class FileStreamSource(SourceConnector):
    aliases = (
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "FileStreamSourceConnector",
    )
    exactly_once = True
    task_class = FileStreamSourceTask
    fields = (
        Field("file", doc="Source filename.", importance=Importance.HIGH),
        Field("topic", doc="The topic to publish data to.", importance=Importance.HIGH),
        Field("batch.size", ConfigType.INT, 2000, "The most lines of one poll.", Range(1), Importance.LOW),
    )

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Any) -> bool:
        for partition, offset in offsets:
            if "filename" not in partition:
                raise ConnectError("Source partition must contain the key 'filename'")
            if offset is None:
                continue
            position = offset.get("position")
            if not isinstance(position, int) or position < 0:
                raise ConnectError(
                    f"Source offset must contain 'position' with a whole number, not {position!r}"
                )
        return True


class FileStreamSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        path = config.get("file")
        try:
            self._file = _AppendedFile(Path(path)) if path else None
        except OSError as error:
            raise ConnectError(
                f"Couldn't find or create file '{path}' for FileStreamSinkTask: {error}"
            ) from error

    def put(self, records: list[SinkRecord]) -> None:
        self._write("".join([f"{text_of(record.value)}\n" for record in records]))

    def put_batch(self, batch: SinkBatch) -> None:
        if not {str}.issuperset(map(type, batch.values)):
            self.put(batch.records())
            return
        self._write("\n".join([*batch.values, ""]))

    def _write(self, text: str) -> None:
        if self._file is None:
            sys.stdout.write(text)
        else:
            self._file.append(text.encode())

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._file is None:
            sys.stdout.flush()

    def stop(self) -> None:
        self.flush({})
        if self._file is not None:
            self._file.close()


class _AppendedFile:
    """Writes all lines of a call or none: the lines of a failed call are cut off, and written again later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._cut: int | None = None
        """The start of what a failed call left in the file."""
        if _ends_within_a_line(path):
            self._append(b"\n")  # a task that was killed wrote a part of it

    def append(self, data: bytes) -> None:
        try:
            self._append(data)
        except OSError as error:
            raise RetriableError(f"{self._path} cannot be written: {error.strerror}") from error

    def _append(self, data: bytes) -> None:
        self._cut_back()
        state = os.fstat(self._file)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            if stat.S_ISREG(state.st_mode):
                self._cut = state.st_size
                with suppress(OSError):
                    self._cut_back()
            raise

    def _cut_back(self) -> None:
        if self._cut is not None:
            if os.fstat(self._file).st_size > self._cut:
                os.ftruncate(self._file, self._cut)
            self._cut = None

    def close(self) -> None:
        os.close(self._file)


def _ends_within_a_line(path: Path) -> bool:
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except PermissionError:  # the file may be writable but not readable
        return False


class FileStreamSink(SinkConnector):
    aliases = ("org.apache.kafka.connect.file.FileStreamSinkConnector", "FileStreamSinkConnector")
    task_class = FileStreamSinkTask
    fields = (
        Field(
            "file",
            ConfigType.STRING,
            None,
            "Destination filename; the worker's log if it is not set.",
            importance=Importance.HIGH,
        ),
    )

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        return True  # the file stores no offsets
