"""Notebooks as students hand them in, made for the tests."""

import json
import zipfile


def code(source, grade_id="", **fields):
    metadata = {"nbgrader": {"grade_id": grade_id}} if grade_id else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, **fields}


def text(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def notebook(*cells, **fields):
    """The bytes of a notebook with these cells; a string is a code cell."""
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": made, **fields}).encode()


def hand_in(root, contents):
    """Write files by their paths, as bytes; returns the folder."""
    for path, data in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def archive(path, contents):
    """A zip file with these files, whatever their paths say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in contents.items():
            made.writestr(name, data)
    return path
