"""Settings as text: .properties files as Java reads them, and key=value words."""

import click
import pytest

from penstock.cli.options.properties import key_values, parse_properties, read_properties, topic_settings


def test_a_properties_file_is_read_as_java_reads_it():
    text = (
        "# comment\n! comment\n\n  listeners = PLAINTEXT://:9092 \nlog.dirs:/data\nnode.id 7\nempty=\nflag\n"
        "long=a,\\\n    b\npath=C:\\\\x\nkey\\ with\\=odd=\\u0041\\t!\nnode.id=8\n"
    )
    assert parse_properties(text) == {
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/data",
        "node.id": "8",
        "empty": "",
        "flag": "",
        "long": "a,b",
        "path": "C:\\x",
        "key with=odd": "A\t!",
    }


@pytest.mark.parametrize("text", ["\\", "a=\\", "=", "\\u12", "a=\\uzzzz", "a\\"])
def test_odd_text_is_no_crash(text):
    assert isinstance(parse_properties(text), dict)


def test_a_file_that_is_not_text_is_a_usage_error(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(click.BadParameter, match="not a UTF-8 text file"):
        read_properties(str(path))


def test_words_are_key_equals_value_and_the_value_may_have_equals_signs():
    assert key_values(("a=1", "b=x=y", "c="), "--set") == {"a": "1", "b": "x=y", "c": ""}
    for bad in ("a", "=1", " =x"):
        with pytest.raises(click.BadParameter, match="not of the form key=value"):
            key_values((bad,), "--set")


def test_a_setting_in_milliseconds_may_have_a_unit():
    words = (
        "retention.ms=7d",
        "segment.ms= 12 H",
        "flush.ms=250ms",
        "retention.bytes=7d",
        "delete.retention.ms=-1",
    )
    assert topic_settings(words, "--config") == {
        "retention.ms": "604800000",
        "segment.ms": "43200000",
        "flush.ms": "250",
        # What is no length of time, or has no business to be one, is the broker's to refuse.
        "retention.bytes": "7d",
        "delete.retention.ms": "-1",
    }
