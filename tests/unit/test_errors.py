"""The error tree: Kafka's codes, names and retry flags."""

import re
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from penstock import errors


@pytest.mark.parametrize("expected", [code for code in ErrorCode if code != 0], ids=lambda code: code.name)
def test_every_kafka_error_code_has_a_class_with_its_name_and_retry_flag(expected: ErrorCode) -> None:
    found = errors.error_for_code(int(expected))
    assert found.code == expected
    assert found.kafka_name == expected.name.upper()
    assert found.retriable == expected.retriable
    assert errors.error_for_name(expected.name.upper()) is found
    assert getattr(errors, "".join(part.capitalize() for part in expected.name.split("_"))) is found


def test_a_code_of_a_newer_kafka_reads_as_unknown_server_error() -> None:
    assert errors.error_for_code(31_000) is errors.UnknownServerError


def test_code_zero_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        errors.error_for_code(0)


def test_an_error_says_its_kafka_name_and_its_message() -> None:
    assert str(errors.InvalidConfig("retention.ms is odd")) == "INVALID_CONFIG: retention.ms is odd"
    assert str(errors.InvalidConfig()) == "INVALID_CONFIG"
    assert errors.InvalidConfig().message is None


def test_every_error_is_a_penstock_error() -> None:
    for kind in (errors.ConfigError, errors.WireError, errors.ApiError):
        assert issubclass(kind, errors.PenstockError)


@pytest.mark.promise(
    "docs", "An error about a missing extra shows the command that installs it from the wheel"
)
def test_a_missing_extra_is_installed_from_the_wheel() -> None:
    error = errors.MissingExtra("Connect", "starlette", "connect")
    assert str(error) == (
        "Connect needs starlette: install the Penstock wheel with the extra `connect` (docs/install.md)"
    )
    source = Path(errors.__file__).parent
    index = re.compile(r"(pip )?install ['\"]?penstock\b")
    assert not [path for path in source.rglob("*.py") if index.search(path.read_text(encoding="utf-8"))]
