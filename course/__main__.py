"""The commands of command.py: python -m course COMMAND."""

import io
import sys

# Helper processes import this file as well, and need nothing of what the commands need.
if __name__ == "__main__":
    from .command import main

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for names that the terminal can't show
    sys.exit(main())
