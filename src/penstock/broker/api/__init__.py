"""The APIs, one file for each key; on top of each the versions, what they added, and what is left out."""
