"""Client metrics (KIP-714): what clients are asked to push, and the topic that keeps what they pushed."""
