"""A project's spec is read by Spark's own rules, and what is wrong with it is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.errors import BadProject
from penstock.pipelines.project.project import find_projects, load_project, spec_for_spark
from penstock.pipelines.project.template import make_project

GOOD = "name: shop\nstorage: file:///var/shop\nlibraries:\n  - glob:\n      include: transformations/**\n"


def spec(directory: Path, text: str) -> Path:
    path = directory / "spark-pipeline.yml"
    path.write_text(text)
    return path


def test_a_spec_is_found_from_anywhere_in_its_project(tmp_path: Path):
    spec(tmp_path, GOOD)
    deep = tmp_path / "transformations" / "deep"
    deep.mkdir(parents=True)
    project = load_project(deep)
    assert project == load_project(tmp_path) == load_project(tmp_path / "spark-pipeline.yml")
    assert (project.name, project.catalog, project.database) == ("shop", "spark_catalog", "default")
    assert project.state_directory == Path("/var/shop/_penstock")


def test_files_are_found_once_and_caches_are_not(tmp_path: Path):
    spec(tmp_path, GOOD + "  - glob:\n      include: transformations/a.py\n")
    (tmp_path / "transformations" / "__pycache__").mkdir(parents=True)
    for name in ("b.sql", "a.py", "__pycache__/a.pyc"):
        (tmp_path / "transformations" / name).write_text("")
    project = load_project(tmp_path)
    assert [path.name for path in project.files()] == ["a.py", "b.sql"]
    before = project.content()
    (tmp_path / "transformations" / "a.py").write_text("changed")
    assert [name for name, hash_ in project.content().items() if before[name] != hash_] == [
        "transformations/a.py"
    ]


def test_a_remote_storage_keeps_its_state_beside_the_spec(tmp_path: Path):
    spec(tmp_path, "name: shop\nstorage: s3a://bucket/shop\n")
    project = load_project(tmp_path)
    assert project.local_storage is None
    assert project.state_directory == tmp_path / ".penstock"
    assert project.under_storage("tables", "t") == "s3a://bucket/shop/tables/t"


@pytest.mark.promise("pipelines", "An error in a project is reported in one line with its position")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nstorage: [shop", "spark-pipeline.yml:2: no valid YAML"),
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("name: shop\n", "'storage' is required"),
        ("name: 5\nstorage: file:///x\n", "'name' is required, as text"),
        (GOOD + "owner: me\n", "unknown field 'owner'"),
        (GOOD.replace("file:///var/shop", "/var/shop"), "or an absolute URI, such as file://"),
        (GOOD.replace("file:///var/shop", "s3a:shop"), "or an absolute URI, such as file://"),
        (GOOD + "configuration:\n  spark.x: 5\n", "put the value of 'spark.x' into quotes"),
        (GOOD + "configuration: 5\n", "must be a mapping of Spark settings"),
        ("name: a\nstorage: file:///x\nlibraries: transformations\n", "each of 'libraries' looks like"),
        ("name: a\nstorage: file:///x\nlibraries:\n  - file: x\n", "each of 'libraries' looks like"),
        (GOOD.replace("transformations/**", "t/**/*.py"), "a folder that ends with /**"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(tmp_path: Path, text: str, says: str):
    spec(tmp_path, text)
    with pytest.raises(BadProject) as raised:
        load_project(tmp_path)
    assert says in str(raised.value)


def test_a_directory_without_a_project_says_how_to_make_one(tmp_path: Path):
    with pytest.raises(BadProject, match="penstock pipeline init"):
        load_project(tmp_path)
    with pytest.raises(BadProject, match="no such file"):
        load_project(tmp_path / "gone")


def test_two_specs_in_one_directory_are_one_too_many(tmp_path: Path):
    spec(tmp_path, GOOD)
    (tmp_path / "spark-pipeline.yaml").write_text(GOOD)
    with pytest.raises(BadProject, match="keep one of them"):
        load_project(tmp_path)


def test_projects_are_found_below_a_directory(tmp_path: Path):
    for name in ("one", "deep/two", ".hidden/three"):
        (tmp_path / name).mkdir(parents=True)
        spec(tmp_path / name, GOOD)
    assert [path.parent.name for path in find_projects(tmp_path)] == ["two", "one"]


@pytest.mark.promise(
    "pipelines", "The files that `penstock pipeline init` writes contain no path or address of this machine"
)
def test_sparks_own_command_gets_a_spec_with_an_absolute_storage(tmp_path: Path):
    spec(tmp_path, GOOD)
    with spec_for_spark(load_project(tmp_path)) as given:
        assert given == tmp_path / "spark-pipeline.yml"
    spec(tmp_path, GOOD.replace("file:///var/shop", "here/storage"))
    project = load_project(tmp_path)
    with spec_for_spark(project) as given:
        assert given.parent == tmp_path
        assert f"storage: {(tmp_path / 'here' / 'storage').as_uri()}" in given.read_text()
        assert load_project(tmp_path) == project
    assert not given.exists()


@pytest.mark.promise(
    "pipelines", "The files that `penstock pipeline init` writes contain no path or address of this machine"
)
def test_a_new_project_is_a_project(tmp_path: Path):
    files = make_project(tmp_path, "shop", "orders", "alerts")
    project = load_project(tmp_path / "shop")
    assert project.name == "shop"
    # What it writes is meant for git: nothing of this machine is in it.
    assert all(str(tmp_path) not in path.read_text() for path in files)
    assert project.storage == (tmp_path / "shop" / "storage").as_uri()
    assert {path.name for path in project.files()} == {"orders.py", "customers.sql"}
    for path in files:
        if path.suffix == ".py":
            compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize(
    ("name", "topic"),
    [("../x", "t"), ("", "t"), ("ok", "no spaces"), ("ok", 't"'), ("ok", "")],
)
def test_names_that_would_break_the_files_are_refused(tmp_path: Path, name: str, topic: str):
    with pytest.raises(BadProject):
        make_project(tmp_path, name, topic, "alerts")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_left_alone(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    with pytest.raises(BadProject, match="exists already"):
        make_project(tmp_path, "shop", "orders", "alerts")
