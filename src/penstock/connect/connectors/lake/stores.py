"""File storage: a local directory, S3-compatible storage or HDFS, through pyarrow's filesystems."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from penstock.connect.api import ConfigType, ConnectError, Field, Importance, RetriableError

STORE = (
    Field(
        "url",
        doc="Where the files are: a directory, file:///path, s3://bucket/prefix or hdfs://host:port/path.",
        importance=Importance.HIGH,
    ),
    Field("s3.endpoint", default=None, doc="The address of S3-compatible storage; default: that of AWS."),
    Field("s3.region", default=None, doc="The region of the bucket."),
    Field("aws.access.key.id", default=None, doc="The access key; default: that of the environment."),
    Field("aws.secret.access.key", ConfigType.PASSWORD, None, "The secret of the access key."),
)
_CONNECT_SECONDS = 10


class Store:
    """Writes and lists files below a URL. Errors are retriable: a store may be unavailable or full."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from pyarrow import fs

        url = str(settings["url"])
        self.url = url.rstrip("/") or "/"
        self._hdfs = url.startswith("hdfs://")
        self._local = url.startswith("file://") or "://" not in url
        if url.startswith("s3://"):
            self._root = url.removeprefix("s3://").strip("/")
            options: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS}
            endpoint = settings.get("s3.endpoint")
            if endpoint:
                scheme, divided, host = str(endpoint).rpartition("://")
                options |= {"endpoint_override": host, "scheme": scheme if divided else "https"}
            for option, name in (
                ("region", "s3.region"),
                ("access_key", "aws.access.key.id"),
                ("secret_key", "aws.secret.access.key"),
            ):
                if settings.get(name):
                    options[option] = settings[name]
            self.filesystem: Any = fs.S3FileSystem(**options)
        elif url.startswith("hdfs://"):
            self._root, self.filesystem = _hdfs(url)
        elif "://" in url and not url.startswith("file://"):
            raise ConnectError(
                f"{url} is not a location for files: use a directory, file:///path, s3://bucket/prefix or "
                "hdfs://host:port/path"
            )
        else:
            self._root = os.path.abspath(url.removeprefix("file://"))
            self.filesystem = fs.LocalFileSystem()

    @property
    def uri(self) -> str:
        """The location for table libraries: an absolute path, or s3://bucket/prefix."""
        return self._root if self._local else f"s3://{self._root}"

    def write(self, name: str, data: Any) -> None:
        """Write the whole file or nothing; replaces a file of the same name. `data` is any object with a
        buffer.
        """
        path = f"{self._root}/{name}"
        try:
            if self._hdfs:
                self._write_hdfs(path, data)
                return
            if not self._local:
                # An object is visible only when it is complete.
                with self.filesystem.open_output_stream(path) as out:
                    out.write(data)
                return
            directory, _, last = path.rpartition("/")
            os.makedirs(directory, exist_ok=True)
            temporary = f"{directory}/.{last}"
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise RetriableError(f"{self.url}/{name} cannot be written: {error}") from error

    def _write_hdfs(self, path: str, data: Any) -> None:
        """A rename in HDFS replaces no file. After a crash between the steps the file is written again."""
        from pyarrow import fs

        directory, _, last = path.rpartition("/")
        temporary = f"{directory}/.{last}"
        self.filesystem.create_dir(directory, recursive=True)
        with self.filesystem.open_output_stream(temporary) as out:
            out.write(data)
        if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
            self.filesystem.delete_file(path)
        self.filesystem.move(temporary, path)

    def files(self) -> list[tuple[str, int]]:
        """The files below the location, in order, with their sizes; without names that start with . or _, as
        in Spark.
        """
        from pyarrow import fs

        try:
            found = self.filesystem.get_file_info(
                fs.FileSelector(self._root, recursive=True, allow_not_found=True)
            )
        except OSError as error:
            raise RetriableError(f"{self.url} cannot be listed: {error}") from error
        names = [
            (each.path.removeprefix(self._root).lstrip("/"), int(each.size))
            for each in found
            if each.type == fs.FileType.File
        ]
        return sorted(
            (name, size)
            for name, size in names
            if not any(part.startswith((".", "_")) for part in name.split("/"))
        )

    def open(self, name: str) -> BinaryIO:
        """A file, for reading."""
        try:
            return io.BufferedReader(self.filesystem.open_input_file(f"{self._root}/{name}"), 1 << 20)
        except OSError as error:
            raise RetriableError(f"{self.url}/{name} cannot be read: {error}") from error

    def check(self, *, writes: bool = True) -> None:
        """Raises OSError if the location cannot be reached, or has a Delta table, in which not all files are
        valid.
        """
        from pyarrow import fs

        if not writes:
            log = self.filesystem.get_file_info(f"{self._root}/_delta_log").type
            if log != fs.FileType.NotFound:
                raise FileExistsError("it is a Delta table, of which not all files count: read it with Spark")
        if self._local and not writes:
            if not os.path.isdir(self._root):
                raise NotADirectoryError(f"{self._root} is not a directory")
            return
        if self._local:
            os.makedirs(self._root, exist_ok=True)
            if not os.access(self._root, os.W_OK):
                raise PermissionError(f"{self._root} is not writable")
            return
        if self._hdfs:
            if writes:
                self.filesystem.create_dir(self._root, recursive=True)
            elif self.filesystem.get_file_info(self._root).type != fs.FileType.Directory:
                raise NotADirectoryError(f"{self._root} is not a directory")
            return
        bucket = self._root.partition("/")[0]
        if self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {bucket}")


def _hdfs(url: str) -> tuple[str, Any]:
    """The path, and the filesystem of `hdfs://[user@]host[:port]/path`.

    Without a host, Hadoop's `fs.defaultFS`; without a port, `host` may be a nameservice.
    """
    from pyarrow import fs

    parts = urlsplit(url)
    try:
        filesystem = fs.HadoopFileSystem(
            parts.hostname or "default", port=parts.port or 0, user=parts.username or None
        )
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConnectError(
            f"{url} cannot be reached: {reason}. pyarrow needs Java and Hadoop's libhdfs: set JAVA_HOME, "
            "HADOOP_HOME, and CLASSPATH to the output of `hadoop classpath --glob`"
        ) from error
    return "/" + parts.path.strip("/"), filesystem
