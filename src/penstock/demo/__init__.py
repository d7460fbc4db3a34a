"""The demo: the flights of 2013 as a stream (`make run`)."""
