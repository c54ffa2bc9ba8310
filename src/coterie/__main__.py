"""`coterie`, and `python -m coterie`: the command line."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported is one line, too."""
    try:
        from coterie.cli import main as run
    except KeyboardInterrupt:
        print("coterie: stopped", file=sys.stderr)
        sys.exit(130)
    run(prog_name="coterie")


if __name__ == "__main__":
    main()
