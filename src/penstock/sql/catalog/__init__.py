"""The catalog: relations, functions and queries, and the topic that stores them."""
