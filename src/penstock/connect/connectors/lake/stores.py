"""Where files are: a local directory, or a bucket of S3-compatible storage, through pyarrow's filesystems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.connect.api import ConfigType, ConnectError, Field, Importance, RetriableError

STORE = (
    Field(
        "url",
        doc="Where the files are: a directory, file:///path or s3://bucket/prefix.",
        importance=Importance.HIGH,
    ),
    Field("s3.endpoint", default=None, doc="The address of S3-compatible storage; default: that of AWS."),
    Field("s3.region", default=None, doc="The region of the bucket."),
    Field("aws.access.key.id", default=None, doc="The access key; default: that of the environment."),
    Field("aws.secret.access.key", ConfigType.PASSWORD, None, "The secret of the access key."),
)
_CONNECT_SECONDS = 10


class Store:
    """Writes and lists files below one place. What fails is tried again: a store may be away or full."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from pyarrow import fs

        url = str(settings["url"])
        self.url = url.rstrip("/") or "/"
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
            self._local = False
            self.filesystem: Any = fs.S3FileSystem(**options)
        elif "://" in url and not url.startswith("file://"):
            raise ConnectError(
                f"{url} is not a location for files: use a directory, file:///path or s3://bucket/prefix"
            )
        else:
            self._root = os.path.abspath(url.removeprefix("file://"))
            self._local = True
            self.filesystem = fs.LocalFileSystem()

    @property
    def uri(self) -> str:
        """The place as other libraries take it: an absolute path, or s3://bucket/prefix."""
        return self._root if self._local else f"s3://{self._root}"

    def write(self, name: str, data: Any) -> None:
        """The whole file or nothing, in place of one of the same name. `data` is anything with a buffer."""
        path = f"{self._root}/{name}"
        try:
            if not self._local:
                # An object is there when it is complete.
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

    def check(self) -> None:
        """OSError if the place cannot be reached."""
        from pyarrow import fs

        if self._local:
            os.makedirs(self._root, exist_ok=True)
            if not os.access(self._root, os.W_OK):
                raise PermissionError(f"{self._root} is not writable")
            return
        bucket = self._root.partition("/")[0]
        if self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {bucket}")
