"""What the pages show: plain functions that return dataclasses. They block: call them in a thread."""
