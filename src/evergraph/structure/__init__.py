"""Structure learning: link predictor, candidates, refinement of the buffer's neighbourhood."""
