"""What a backup holds while the broker goes on: segments that are deleted, replaced, appended to and cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.backup.errors import BackupError
from penstock.backup.metadata import read_metadata, write_metadata
from penstock.backup.staging import Source, Staging
from penstock.clock import ManualClock

SEGMENT, NEXT = "00000000000000000000.log", "00000000000000000010.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / SEGMENT).write_text("sealed")
    (directory / NEXT).write_text("active")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    (tmp_path / ".lock").touch()
    (tmp_path / "metadata.sqlite").touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return directory


def read(sources: list[Source]) -> dict[str, str]:
    return {source.name: Path(source.path).read_text()[: source.size] for source in sources}


def test_what_is_deleted_replaced_or_appended_later_is_held_as_it_was(partition: Path) -> None:
    staging = Staging(str(partition.parent))
    staging.sync()
    (partition / SEGMENT).with_suffix(".log.cleaned").write_text("compacted")
    (partition / SEGMENT).with_suffix(".log.cleaned").replace(partition / SEGMENT)
    (partition / "00000000000000000020.log").write_text("new")
    (partition / NEXT).open("a").write(" more")
    found = staging.sync()
    (partition / SEGMENT).unlink()
    (partition / "00000000000000000020.log").open("a").write(" later")
    assert read(found) == {
        f"t-0/{SEGMENT}": "compacted",
        f"t-0/{NEXT}": "active more",
        "t-0/00000000000000000020.log": "new",
        "t-0/leader-epoch-checkpoint": "0\n1\n3 0\n",
        "recovery-point-offset-checkpoint": "0\n0\n",
    }
    # What has gone before the last look is not in it.
    assert f"t-0/{SEGMENT}" not in read(staging.sync())
    staging.remove()
    assert not (partition.parent / ".penstock-backup").exists()


def test_a_partition_that_follows_a_new_leader_meanwhile_is_taken_as_it_is_then(partition: Path) -> None:
    staging = Staging(str(partition.parent))
    staging.sync()
    assert staging.is_current("t-0")
    # The log is cut and gets the records of the new leader; the links share the file.
    (partition / NEXT).write_text("other records")
    (partition / "leader-epoch-checkpoint.tmp").write_text("0\n2\n3 0\n5 10\n")
    (partition / "leader-epoch-checkpoint.tmp").replace(partition / "leader-epoch-checkpoint")
    assert not staging.is_current("t-0")
    assert read(staging.again("t-0")) == {
        f"t-0/{SEGMENT}": "sealed",
        f"t-0/{NEXT}": "other records",
        "t-0/leader-epoch-checkpoint": "0\n2\n3 0\n5 10\n",
    }
    assert staging.is_current("t-0")


def test_a_file_of_metadata_gives_back_the_bytes_of_every_node(tmp_path: Path) -> None:
    nodes = {
        "/cluster/id": b"abc",
        "/credentials/salt-key": bytes(range(256)),
        "/brokers/topics/t": b'{"id":"x","replicas":[[1]]}',
        "/config/topics/t": b'{"a": 1}',  # with a space: not as this version writes it
    }
    file = tmp_path / "metadata.json"
    write_metadata(str(file), nodes, ManualClock())
    assert read_metadata(str(file)) == nodes
    file.write_text(file.read_text()[:-20])
    with pytest.raises(BackupError, match="is not JSON"):
        read_metadata(str(file))
