"""HTTP as every server here speaks it: which requests are let in, and the servers that let them in."""
