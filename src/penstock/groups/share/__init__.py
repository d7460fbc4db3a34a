"""Share groups (KIP-932): their members, the records they have in flight, and the state behind both."""
