"""``python -m evergraph`` is the same command."""

from evergraph.lab.cli import main

if __name__ == "__main__":
    main()
