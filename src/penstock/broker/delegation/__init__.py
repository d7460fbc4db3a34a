"""Delegation tokens (KIP-48): logins that an authenticated client makes for others, for a limited time."""
