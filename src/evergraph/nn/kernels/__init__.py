"""Fast paths of single operations, each tested against the plain one in :mod:`..ops`."""
