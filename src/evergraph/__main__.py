"""``python -m evergraph`` is the same command."""

import sys

if __name__ == "__main__":
    try:
        from evergraph.lab.cli import main
    except KeyboardInterrupt:  # before the command can answer itself
        print("evergraph: Interrupted: the same command continues.", file=sys.stderr)
        sys.exit(130)
    main()
