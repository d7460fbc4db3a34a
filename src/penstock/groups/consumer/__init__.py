"""Consumer groups of KIP-848: members say what they want, the coordinator assigns, and leads each to its part
step by step. Classic members of a group that is being migrated are served here as well."""
