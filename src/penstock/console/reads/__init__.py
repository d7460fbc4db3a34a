"""The data of the pages: plain blocking functions that return dataclasses. Call them in a thread."""
