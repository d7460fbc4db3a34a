"""Secrets by reference in property files: what is put in, and what errors say of it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.credentials.references import resolve, resolve_all
from penstock.errors import ConfigError
from penstock.spark.errors import BadOption
from penstock.spark.source.options import resolved

SECRET = "planted-secret-1234"


@pytest.mark.promise(
    "access",
    "Secrets are read from files and the environment, and appear in no log, response, topic or file of a run",
)
def test_references_to_the_environment_and_to_files_are_resolved(tmp_path):
    whole, properties = tmp_path / "password", tmp_path / "all.properties"
    whole.write_text(f"{SECRET}\n")
    properties.write_text(f"# passwords\nother=x\nalice = {SECRET}\n")
    settings = {
        "a": "${env:PASSWORD}",
        "b": f"${{file:{whole}}}",
        "c": f"${{file:{properties}:alice}}",
        "d": f'Module required username="u" password="${{file:{whole}}}" more="${{env:PASSWORD}}";',
        "e": "plain",
        "g": f"${{directory:{tmp_path}:password}}",
        "f": "${other:x} $env ${",
    }
    found = resolve_all(settings, {"PASSWORD": SECRET})
    assert [found[name] for name in "abc"] == [SECRET] * 3
    assert found["d"] == f'Module required username="u" password="{SECRET}" more="{SECRET}";'
    assert found["g"] == f"{SECRET}\n"  # as Kafka's DirectoryConfigProvider: the text as it is
    assert (found["e"], found["f"]) == ("plain", "${other:x} $env ${")


def test_a_secret_that_looks_like_a_reference_is_taken_as_it_is():
    assert resolve("a", "${env:X}", {"X": "${env:Y}", "Y": "no"}) == "${env:Y}"


@pytest.mark.promise(
    "access",
    "Secrets are read from files and the environment, and appear in no log, response, topic or file of a run",
)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${env:NOBODY}", "the environment variable NOBODY is not set"),
        ("${file:/nowhere/at/all}", "No such file"),
        ("${file:DIR/all.properties:eve}", "has no 'eve'"),
        ("${file:DIR}", "Is a directory"),
        ("${directory:DIR:eve}", "cannot be read: No such file"),
        ("${directory:DIR}", "${directory:PATH:FILE}"),
        ("${file:DIR/binary}", "not text in UTF-8"),
    ],
)
def test_what_cannot_be_resolved_names_the_setting_and_no_secret(tmp_path, value, message):
    (tmp_path / "all.properties").write_text(f"alice={SECRET}\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as error:
        resolve("sasl.password", value.replace("DIR", str(tmp_path)), {})
    assert message in str(error.value) and "sasl.password" in str(error.value)
    assert SECRET not in str(error.value)


def test_a_reference_that_cannot_be_resolved_is_a_usage_error_of_a_command_and_of_an_option(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=${env:NOBODY_HAS_THIS}\n")
    result = CliRunner().invoke(cli, ["topics", "list", "--client-config", str(file)])
    assert result.exit_code == 2 and "NOBODY_HAS_THIS is not set" in result.output
    with pytest.raises(BadOption, match=r"kafka\.sasl\.password.*NOBODY_HAS_THIS is not set"):
        resolved({"sasl.password": "${env:NOBODY_HAS_THIS}"})
