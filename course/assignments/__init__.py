"""The assignments, by number: their questions, as the grader asks them."""
