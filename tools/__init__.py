"""What builds and checks the book. Run from the root: `python -m tools.NAME`."""
