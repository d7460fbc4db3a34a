"""JSON Schemas."""
