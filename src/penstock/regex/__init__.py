"""Regular expressions in RE2's syntax, matched with bounded work whatever the pattern and the text."""
