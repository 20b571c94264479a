"""The course: assignments, the notebooks that students get, and the grader.

    python -m course --help

Students need none of this: their notebooks import `mini_attention` alone.
"""
