"""What becomes of runs: pages, figures, the document of the reproduction."""
