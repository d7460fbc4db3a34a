"""The interface of a converter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.connect.schemas import Schema
from penstock.connect.settings import Field, parse


class Converter:
    """Converts the keys, the values or the headers of one task."""

    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        """`config` has no prefix `key.converter.` or `value.converter.`."""
        self.settings: dict[str, Any] = parse(self.fields, config)
        self.is_key = is_key

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Raises DataError for a value that it cannot write."""
        raise NotImplementedError

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Raises DataError for bytes that it cannot read."""
        raise NotImplementedError

    def many_to_bytes(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        """Calls `to_bytes` for each; raises the error of any of them."""
        return [self.to_bytes(topic, schema, value) for value in values]

    def many_from_bytes(
        self, topic: str, data: Sequence[bytes | None]
    ) -> tuple[Schema | None, list[Any]] | None:
        """Calls `from_bytes` for each. None if they have different schemas."""
        pairs = [self.from_bytes(topic, each) for each in data]
        schema = pairs[0][0]
        if any(each is not schema and each != schema for each, _ in pairs):
            return None
        return schema, [value for _, value in pairs]

    def close(self) -> None:
        """Release connections."""
