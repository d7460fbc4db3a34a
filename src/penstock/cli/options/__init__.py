"""Options that many commands share, the settings that they name, and secrets."""
