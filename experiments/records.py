"""What the record of an experiment holds beside what was found, and how it is kept."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def head(setting: DataclassInstance) -> dict[str, Any]:
    """Where, with what and when it was made."""
    return {
        "processor": record.processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "setting": asdict(setting),
    }


def write(made: Mapping[str, Any], file: Path) -> None:
    """In one step: nothing ever sees half a file."""
    beside = file.with_suffix(".writing")
    beside.write_text(record.as_text(json.loads(json.dumps(made))) + "\n", encoding="utf-8")
    beside.replace(file)


def begun(file: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier call has found with the same setting and the same torch."""
    if not file.exists():
        return {}
    made = json.loads(file.read_text("utf-8"))
    same = all(made[key] == json.loads(json.dumps(head[key])) for key in ("setting", "torch"))
    return dict(made["found"]) if same else {}
