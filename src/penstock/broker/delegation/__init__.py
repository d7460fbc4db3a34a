"""Delegation tokens (KIP-48): time-limited credentials that an authenticated client creates for others."""
