"""A cache of encoded Metadata responses for one version of the image, by request: clients repeat the same
ones."""

from __future__ import annotations

_MAX_BYTES = 8 * 1024 * 1024
# Larger requests are not cached: they are unlikely to be repeated unchanged.
_MAX_KEY = 4096

CacheKey = tuple[int, bytes, str]
"""The version and body of the request, and the listener, which decides the addresses in the response."""


class MetadataCache:
    __slots__ = ("_answers", "_image_version", "_size")

    def __init__(self) -> None:
        self._image_version = -1
        self._answers: dict[CacheKey, bytes] = {}
        self._size = 0

    def get(self, image_version: int, key: CacheKey) -> bytes | None:
        return self._answers.get(key) if image_version == self._image_version else None

    def put(self, image_version: int, key: CacheKey, answer: bytes) -> None:
        size = len(key[1]) + len(answer)
        if image_version != self._image_version or self._size + size > _MAX_BYTES:
            self._answers.clear()
            self._size = 0
            self._image_version = image_version
        if len(key[1]) <= _MAX_KEY and size <= _MAX_BYTES and key not in self._answers:
            self._answers[key] = answer
            self._size += size
