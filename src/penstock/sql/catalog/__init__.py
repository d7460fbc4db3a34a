"""What is defined: relations, functions and queries, and the topic that keeps them."""
