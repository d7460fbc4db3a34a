"""Shared components of pages: the frame, tables, dialogs, actions with permission checks."""
