"""The language: from text to statements. Pure."""
