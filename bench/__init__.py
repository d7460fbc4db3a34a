"""`make bench`: what the broker does on this machine, beside what the machine allows in the same run."""
