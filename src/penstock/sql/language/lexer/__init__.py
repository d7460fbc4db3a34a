"""From text to words: variables replaced, tokens with their places, keywords, and a cursor over them."""
