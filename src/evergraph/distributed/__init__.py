"""Graphs in parts on disk: cutting them, and many workers that learn and predict one each."""
