"""The project's storage through Hadoop's file systems: they may lie wherever Spark can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Storage:
    """Directories and files under any URI that Spark knows."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._conf = session._jsparkSession.sessionState().newHadoopConf()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self._conf), path

    def exists(self, uri: str) -> bool:
        files, path = self._at(uri)
        return bool(files.exists(path))

    def names(self, uri: str) -> list[str]:
        """What a directory holds; nothing when it is not there."""
        files, path = self._at(uri)
        if not files.exists(path):
            return []
        return [status.getPath().getName() for status in files.listStatus(path)]

    def make_directory(self, uri: str) -> None:
        files, path = self._at(uri)
        files.mkdirs(path)

    def delete(self, uri: str) -> None:
        files, path = self._at(uri)
        files.delete(path, True)

    def rename(self, uri: str, to: str) -> None:
        files, path = self._at(uri)
        if not files.rename(path, self._jvm.org.apache.hadoop.fs.Path(to)):
            raise OSError(f"cannot rename {uri} to {to}")


def latest_checkpoint(storage: Storage, root: str) -> str:
    """The newest numbered checkpoint of a flow, as Spark's own runner chooses it; `0` when there is none."""
    numbers = [int(name) for name in storage.names(root) if name.isdigit()]
    return f"{root}/{max(numbers, default=0)}"


def next_checkpoint(storage: Storage, root: str) -> str:
    """A new, empty checkpoint after all earlier ones, which stay for those who want to look at them."""
    numbers = [int(name) for name in storage.names(root) if name.isdigit()]
    if not numbers:
        return f"{root}/0"
    fresh = f"{root}/{max(numbers) + 1}"
    storage.make_directory(fresh)
    return fresh
