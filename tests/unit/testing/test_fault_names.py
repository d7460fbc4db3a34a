"""Faults are named as Kafka names its APIs and errors."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.testing.faults import Fault, FaultKind
from penstock.testing.interceptor import api_key, api_name, fault_from_json
from penstock.wire.api_keys import ApiKey


def rule(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "fail",
        "api": "Produce",
        "times": 1,
        "skip": 0,
        "error": "NOT_LEADER_OR_FOLLOWER",
    } | changes


@pytest.mark.parametrize("key", list(ApiKey))
def test_every_api_is_found_by_its_name(key: ApiKey) -> None:
    assert api_key(api_name(key)) == key
    assert api_key(key.name) == key


def test_names_become_keys_and_codes() -> None:
    assert fault_from_json(rule()) == Fault(FaultKind.FAIL, 0, 1, error_code=6)
    assert fault_from_json(rule(error=6)) == Fault(FaultKind.FAIL, 0, 1, error_code=6)
    everything = rule(kind="drop", api="*", error=None, times=None)
    assert fault_from_json(everything) == Fault(FaultKind.DROP, None)


@pytest.mark.parametrize("bad", [{"api": "Produse"}, {"error": "NO_SUCH_ERROR"}])
def test_a_name_that_kafka_does_not_have_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Kafka has no such"):
        fault_from_json(rule(**bad))
