"""The differences between JSON Schemas: which are compatible, and the messages of the others.

Names and messages are those of Confluent's registry, which tools show; Penstock's own (a pattern property
added, a condition changed, too complex) are at the end.
"""

from __future__ import annotations

from penstock.registry.formats.schema import Words

COMPATIBLE = frozenset(
    [
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)

COMPATIBLE_LENIENT = COMPATIBLE | frozenset(
    [
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ]
)

_KEYWORD = "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
_MORE = "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema"
_LESS = "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema"
_OTHER = "The value at path '{path}' is different between the {reader} and {writer} schema"
_FEWER = (
    "An array or combined type at path '{path}' has fewer elements in the {reader} schema "
    "than the {writer} schema"
)
_ADDED = (
    "An array or combined type at path '{path}' has more elements in the {reader} schema "
    "than the {writer} schema"
)
_TYPE = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_OPEN = (
    "The {reader} schema has an open content model and has a property or item at path '{path}' "
    "which is missing in the {writer} schema"
)
_UNOPEN = (
    "The {reader} schema has an unopen content model and has a required property at path '{path}' "
    "which is missing in the {writer} schema"
)
_CLOSED = (
    "The {reader} has a closed content model and is missing a property or item present at path '{path}' "
    "in the {writer} schema"
)
_REMOVED = (
    "A property or item is missing in the {reader} schema but present at path '{path}' "
    "in the {writer} schema and is not covered by its partially open content model"
)
_UNCOVERED = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema "
    "and is not covered by its partially open content model"
)

_SENTENCES = {
    **dict.fromkeys(
        [
            "MAXIMUM_ADDED",
            "MINIMUM_ADDED",
            "EXCLUSIVE_MAXIMUM_ADDED",
            "EXCLUSIVE_MINIMUM_ADDED",
            "MULTIPLE_OF_ADDED",
            "MAX_LENGTH_ADDED",
            "MIN_LENGTH_ADDED",
            "PATTERN_ADDED",
            "REQUIRED_ATTRIBUTE_ADDED",
            "MAX_PROPERTIES_ADDED",
            "MIN_PROPERTIES_ADDED",
            "DEPENDENCY_ARRAY_ADDED",
            "DEPENDENCY_SCHEMA_ADDED",
            "MAX_ITEMS_ADDED",
            "MIN_ITEMS_ADDED",
            "MAX_CONTAINS_ADDED",
            "MIN_CONTAINS_ADDED",
            "UNIQUE_ITEMS_ADDED",
            "ADDITIONAL_ITEMS_REMOVED",
            "ADDITIONAL_PROPERTIES_REMOVED",
            "UNEVALUATED_PROPERTIES_REMOVED",
            "UNEVALUATED_ITEMS_REMOVED",
        ],
        _KEYWORD,
    ),
    **dict.fromkeys(
        [
            "MIN_LENGTH_INCREASED",
            "MINIMUM_INCREASED",
            "EXCLUSIVE_MINIMUM_INCREASED",
            "MIN_PROPERTIES_INCREASED",
            "MULTIPLE_OF_EXPANDED",
            "MIN_ITEMS_INCREASED",
            "MIN_CONTAINS_INCREASED",
        ],
        _MORE,
    ),
    **dict.fromkeys(
        [
            "MAX_LENGTH_DECREASED",
            "MAXIMUM_DECREASED",
            "MAX_ITEMS_DECREASED",
            "MAX_CONTAINS_DECREASED",
            "EXCLUSIVE_MAXIMUM_DECREASED",
            "MAX_PROPERTIES_DECREASED",
        ],
        _LESS,
    ),
    **dict.fromkeys(["PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED"], _OTHER),
    **dict.fromkeys(
        [
            "ADDITIONAL_ITEMS_NARROWED",
            "ENUM_ARRAY_NARROWED",
            "SUM_TYPE_NARROWED",
            "ADDITIONAL_PROPERTIES_NARROWED",
            "UNEVALUATED_PROPERTIES_NARROWED",
            "UNEVALUATED_ITEMS_NARROWED",
        ],
        _FEWER,
    ),
    **dict.fromkeys(["DEPENDENCY_ARRAY_EXTENDED", "PRODUCT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"], _ADDED),
    **dict.fromkeys(
        [
            "TYPE_CHANGED",
            "TYPE_NARROWED",
            "COMBINED_TYPE_CHANGED",
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            "ENUM_ARRAY_CHANGED",
        ],
        _TYPE,
    ),
    **dict.fromkeys(
        [
            "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
            "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
            "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
            "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
        ],
        _OPEN,
    ),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _UNOPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED,
    "SCHEMA_ADDED": "The {reader} schema has a schema at path '{path}' "
    "which is missing in the {writer} schema",
    "PATTERN_PROPERTY_ADDED": _KEYWORD,
    "CONDITION_CHANGED": _OTHER,
    "TOO_COMPLEX": "The {reader} and the {writer} schema are too large to be compared (at path '{path}')",
}


def sentence(kind: str, path: str, words: Words) -> str:
    """The reason as Confluent's registry writes it, including the apostrophe in place of the closing
    quote.
    """
    description = _SENTENCES[kind].format(path=path, reader=words.reader, writer=words.writer)
    return f'{{errorType:"{kind}", description:"{description}\'}}'
