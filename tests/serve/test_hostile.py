"""A server of `costner serve` that is killed and attacked: see `hostile_serve.py`."""

from pathlib import Path

import pytest

from ..hostile_serve import attack, kill_often

pytest.importorskip("starlette")
pytestmark = pytest.mark.slow


def test_a_killed_server_loses_no_answer(tmp_path: Path) -> None:
    """`kill_often` fails if an answer is lost."""
    kill_often(tmp_path, 1)


def test_hostile_requests_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """`attack` fails if a request is accepted, changes a file or is an error of the server. It
    returns how many had each status: a bad request, a strange origin or host, and a body that isn't
    JSON are among them."""
    statuses = attack(tmp_path, 60)
    assert statuses[400] and statuses[403] and statuses[415]
