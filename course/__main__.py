"""The commands of command.py: python -m course COMMAND."""

import sys

# Helper processes import this file as well, and need nothing of what the commands need.
if __name__ == "__main__":
    from .command import main

    sys.exit(main())
