"""A Model Context Protocol server: a cluster for language models, over the same reads as the web console.

`tools` has what can be asked, as plain functions; `server` offers them over standard input and output.
"""
