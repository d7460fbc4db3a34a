"""What a client may do: ACLs, what each API asks of them, and the check before each handler."""
