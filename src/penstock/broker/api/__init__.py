"""The Kafka APIs, one file for each key; its docstring has the versions, what they added and what is left
out."""
