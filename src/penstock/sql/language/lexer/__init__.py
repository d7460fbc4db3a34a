"""From text to tokens: replaces variables, and has tokens with positions, keywords, and a cursor over
them.
"""
