"""The paper: its experiments, its numbers, and what became of them here."""
