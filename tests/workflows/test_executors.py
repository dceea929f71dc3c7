"""Tests of executors on this machine: their workers start together."""

import sys
from multiprocessing import get_context
from typing import Any
from unittest.mock import Mock

import pytest

from spacy_costner.workflows.executors import Processes

from ..support.runs import square


def test_all_workers_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None starts later, when another one may have died: in CPython before 3.13, it is then waited
    for without end."""
    with Processes(3) as executor:
        worker_class: Any = get_context(
            "forkserver" if sys.platform == "linux" else "spawn"
        ).Process
        start = Mock(side_effect=worker_class.start, autospec=True)
        monkeypatch.setattr(worker_class, "start", lambda worker: start(worker))
        started: list[int] = []
        for x in range(5):
            executor.submit(square, x)
            started.append(start.call_count)
    assert started == [3, 3, 3, 3, 3]
