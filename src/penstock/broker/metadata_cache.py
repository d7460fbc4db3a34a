"""Encoded Metadata answers of one version of the cluster's image, by request: clients ask the same again."""

from __future__ import annotations

_MAX_BYTES = 8 * 1024 * 1024
# A request this large is not asked twice in the same form.
_MAX_KEY = 4096

CacheKey = tuple[int, bytes, str]
"""Version and body of the request, and the listener: the addresses are those of its clients."""


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
