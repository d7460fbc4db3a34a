"""Where the files of a lake are: a local disk and an S3-compatible server, seen by an ordinary client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Place:
    """Where the files go, seen by an ordinary client."""

    def __init__(self, settings: dict[str, str], filesystem: Any, root: str) -> None:
        self.settings, self._filesystem, self._root = settings, filesystem, root

    def files(self) -> dict[str, bytes]:
        found = self._filesystem.get_file_info(
            fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        )
        return {
            each.path.removeprefix(f"{self._root}/"): self._filesystem.open_input_file(each.path).read()
            for each in sorted(found, key=lambda info: info.path)
            if each.type == fs.FileType.File
        }

    def rows(self, topic: str = "items") -> list[dict[str, Any]]:
        root = f"{self._root}/topics/{topic}"
        found = dataset.dataset(root, filesystem=self._filesystem, format="parquet", partitioning="hive")
        return found.to_table().to_pylist()


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Place:
    if request.param == "local":
        return Place({"url": str(tmp_path)}, fs.LocalFileSystem(), str(tmp_path))
    endpoint = request.getfixturevalue("s3_server")
    bucket = name.lower()[-40:].strip("-")
    login = {"access_key": "a", "secret_key": "b", "region": "us-east-1"}
    filesystem = fs.S3FileSystem(
        endpoint_override=endpoint.partition("://")[2], scheme="http", allow_bucket_creation=True, **login
    )
    filesystem.create_dir(bucket)
    settings = {
        "url": f"s3://{bucket}/lake", "s3.endpoint": endpoint, "s3.region": "us-east-1",
        "aws.access.key.id": "a", "aws.secret.access.key": "b",
    }  # fmt: skip
    return Place(settings, filesystem, f"{bucket}/lake")
