"""The controller: decides and stores every change of the cluster's metadata."""

from penstock.controller.controller import Controller
from penstock.controller.requests import (
    AlterConfigsResult,
    AlterOp,
    AlterResource,
    ConfigOp,
    CreatePartitionsResult,
    CreateTopicResult,
    DeleteTopicResult,
    PartitionsSpec,
    ResourceType,
    TopicRef,
    TopicSpec,
)

__all__ = [
    "AlterConfigsResult",
    "AlterOp",
    "AlterResource",
    "ConfigOp",
    "Controller",
    "CreatePartitionsResult",
    "CreateTopicResult",
    "DeleteTopicResult",
    "PartitionsSpec",
    "ResourceType",
    "TopicRef",
    "TopicSpec",
]
