"""Tests of `annotate` and `compare` on a Ray cluster of several nodes, where workers, nodes and the
driver are killed: `make test-distributed`. They are skipped if Ray isn't installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from spacy_costner.workflows.apply import annotating as module
from spacy_costner.workflows.apply.annotating import Summary
from spacy_costner.workflows.apply.batches import annotate_texts, load_annotator
from spacy_costner.workflows.ray_executor import RayCluster, ray_cluster
from spacy_costner.workflows.runs import MakeExecutor, Run, run_all

from ...support.annotating import SENTENCES, Saved, files, places, rows, save_pipeline, write_inputs
from ...support.cluster import (
    ENV,
    add_node,
    command,
    descendants,
    listening_elsewhere,
    other_version,
    start_cluster,
    wait_for_end,
)
from ...support.runs import call_before, square

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: run make test-distributed"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of Ray. All of its processes have ended after the test."""
    before = descendants(os.getpid())
    cluster = start_cluster(2, Path(gettempdir(), f"ray-{os.getpid()}"))
    try:
        yield cluster
    finally:
        # The resource tracker is of Python's processes, and goes on.
        started = descendants(os.getpid()) - before
        of_cluster = {p for p in started if "resource_tracker" not in command(p)}
        cluster.shutdown()
        assert len(of_cluster) > 5  # else there is nothing to wait for
        assert [command(process) for process in wait_for_end(of_cluster)] == []
        shutil.rmtree(Path(gettempdir(), f"ray-{os.getpid()}"), ignore_errors=True)


@pytest.fixture
def on_ray(cluster: Any) -> MakeExecutor:
    """An executor on at least two nodes."""
    while len([node for node in cluster.worker_nodes if not node.dead_processes()]) < 2:
        add_node(cluster)
    make_executor = ray_cluster(cluster.address)
    assert make_executor is not None
    return make_executor


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A saved pipeline with a component that fails, dies or is slow, as the texts say."""
    return save_pipeline(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder of texts. The last text kills its worker, if the file "died" isn't there. The 24
    SENTENCES and two more are in two files, which makes 52 docs. In parts of three docs each file
    is 9 parts, so there are 18."""
    (tmp_path / "died").touch()
    texts = [*SENTENCES, "poison", f"killer {tmp_path / 'died'}"]
    return write_inputs(tmp_path / "in", *texts)


COSTNER = [sys.executable, "-m", "spacy", "costner"]
Annotate = Callable[..., Summary]


@pytest.fixture
def annotate(
    saved: Saved,
    inputs: Path,
    tmp_path: Path,
    on_ray: MakeExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> Annotate:
    """A function that annotates `inputs` on Ray, in parts of three texts."""
    # Ray has workers look for packages in the working directory: not in this repository.
    monkeypatch.chdir(tmp_path)

    def annotate(**settings: Any) -> Summary:
        all_settings: dict[str, Any] = {"n_rows": 3, "make_executor": on_ray, **settings}
        return module.annotate(
            saved.model, [inputs], tmp_path / "out", code_path=saved.code, **all_settings
        )

    return annotate


def check(saved: Saved, inputs: Path, output: Path) -> None:
    """Check that the output is the same as with one process, which `test_annotate` tests."""
    of_one_process = output.with_name("of_one_process")
    module.annotate(saved.model, [inputs], of_one_process, code_path=saved.code, n_rows=3)
    assert files(output) == files(of_one_process)
    assert len(rows(output)) == 52


def test_annotate_goes_on_when_workers_are_killed(
    annotate: Annotate, saved: Saved, inputs: Path, tmp_path: Path
) -> None:
    """One document kills its worker once. Another one does so each time: its part isn't written,
    and is named. It is tried twice with others and twice alone. Each worker loads the pipeline
    once."""
    (tmp_path / "died").unlink()
    (inputs / "c.txt").write_text("deadly\n")
    for path in saved.loads.iterdir():
        path.unlink()

    summary = annotate()

    assert {path.read_text() for path in saved.loads.iterdir()} == {"loaded\n"}
    assert summary.errors == {"c.txt-00000.jsonl": "its worker died 4 times"}
    assert summary.docs == 52
    assert (tmp_path / "died").exists()
    (inputs / "c.txt").unlink()
    assert annotate().parts.kept == 18
    check(saved, inputs, tmp_path / "out")


def test_annotate_goes_on_when_a_node_is_removed(
    annotate: Annotate,
    cluster: Any,
    on_ray: MakeExecutor,
    saved: Saved,
    inputs: Path,
    tmp_path: Path,
) -> None:
    write_slowly(inputs)

    def remove_node() -> None:
        """Remove a node from the cluster while it has work."""
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    assert not annotate(make_executor=call_before(7, remove_node, on_ray)).errors
    check(saved, inputs, tmp_path / "out")


def write_slowly(inputs: Path) -> None:
    """Make the annotation of each part slow."""
    for path in (inputs / "b.jsonl", inputs / "sub" / "a.txt"):
        path.write_text(path.read_text().replace("Sox", "slow Sox"))


def test_annotate_goes_on_where_a_killed_driver_stopped(
    cluster: Any, on_ray: MakeExecutor, saved: Saved, inputs: Path, tmp_path: Path
) -> None:
    """The driver is killed as soon as three parts are written."""
    write_slowly(inputs)
    output = tmp_path / "out"
    manifest = output / "manifest.jsonl"
    arguments = ["annotate", saved.model, inputs, "-o", output, "--code", saved.code]
    arguments += ["--part", 3, "--address", cluster.address, "--json"]
    command_line = [*COSTNER, *map(str, arguments)]
    env = {**os.environ, **ENV}
    before = descendants(os.getpid())
    driver = subprocess.Popen(command_line, env=env, stdout=subprocess.DEVNULL)
    while not manifest.exists() or manifest.read_bytes().count(b"\n") < 3:
        assert driver.poll() is None
        time.sleep(0.02)
    workers = descendants(os.getpid()) - before - {driver.pid}
    driver.kill()
    driver.wait()

    second = subprocess.run(command_line, env=env, capture_output=True, text=True)

    assert second.returncode == 0, second.stderr
    summary = json.loads(second.stdout)  # without what Ray says
    assert summary["parts"]["kept"] >= 3
    assert summary["parts"]["new"] > 0
    assert summary["docs"] == 52
    check(saved, inputs, output)
    assert workers
    assert not wait_for_end(workers)


def test_a_worker_of_another_version_is_refused_before_the_first_part(
    annotate: Annotate, cluster: Any, tmp_path: Path
) -> None:
    """No part is begun."""
    node = add_node(cluster, env_vars=other_version(tmp_path / "other"))
    message = r"worker on .*: expected spacy-costner .*, got 0\.0\.1"
    with pytest.raises(ValueError, match=message):
        annotate()
    assert not list((tmp_path / "out").rglob("*-0*.jsonl"))
    cluster.remove_node(node)
    assert annotate().parts.new == 18  # all parts


def test_the_executor_on_ray_behaves_as_one_of_concurrent_futures(on_ray: MakeExecutor) -> None:
    """It raises the errors of the function. A process that was connected before stays so. Nothing
    listens for other machines."""
    with on_ray() as executor:
        assert isinstance(executor, RayCluster)
        square_of_2 = executor.submit(square, 2)
        failing = executor.submit(square, -1)
        assert square_of_2.result()["square"] == 4
        processes = {os.getpid(), *descendants(os.getpid())}
        assert len(processes) > 6  # this one and the processes of the cluster
        assert not list(listening_elsewhere(processes))
        with pytest.raises(ValueError, match="below 0"):
            failing.result()
        runs = [Run("a", square, {"x": 3})]
        assert [ended.value["square"] for _, ended in run_all(runs, on_ray)] == [9]
        assert executor.submit(square, 4).result()["square"] == 16
    import ray

    assert not ray.is_initialized()


def recipe(heading: str) -> dict[str, Any]:
    """The names that the example below a heading of the docs defines."""
    (code,) = re.findall(rf"^## {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, heading, "exec"), names)
    return names


TABLE = [*enumerate([*SENTENCES, None])]
"""Ids and texts. The last row has no text, so it fails."""


def answers(model: Path) -> list[Any]:
    """The records of the table, as one process makes them."""
    ids, texts = zip(*TABLE)
    return list(map(essence, annotate_texts(load_annotator(model), ids, texts)))


def essence(row: Any) -> tuple[Any, list[tuple[int, int, str]], bool]:
    """The id and the entities of a record, and whether it failed. Scores are left out, as their
    last digits depend on the batch."""
    entities = row.get("entities") or []
    assert all(0 < entity["score"] <= 1 for entity in entities)
    return row["id"], places(entities), bool(row.get("error"))


def check_answers(rows: list[Any], saved: Saved) -> None:
    """Check that the rows of the table are those of one process. The first has entities, and the
    last has failed."""
    answers_of_rows = [essence(row) for row in rows]
    _, first_entities, _ = answers_of_rows[0]
    _, _, last_failed = answers_of_rows[-1]
    assert answers_of_rows == answers(saved.harmless)
    assert first_entities
    assert last_failed


def test_the_recipe_for_ray_data_predicts_what_one_process_predicts(
    saved: Saved, on_ray: MakeExecutor
) -> None:
    pytest.importorskip("pandas", reason="needs ray[data]: run make test-distributed")
    with on_ray():
        import ray.data

        items = [{"id": i, "text": text} for i, text in TABLE]
        dataset = ray.data.from_items(items, override_num_blocks=3)
        annotated = recipe("Ray Data")["annotate_dataset"](dataset, str(saved.harmless))
        rows = sorted(annotated.take_all(), key=lambda row: row["id"])
    check_answers([{**row, "entities": json.loads(row["entities"])} for row in rows], saved)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Spark in two threads. It listens on this machine only, and has ended after the test."""
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark: run make test-distributed")
    if shutil.which("java") is None:
        pytest.skip("needs Java 17 for Spark")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    builder = sql.SparkSession.builder.master("local[2]")
    for name, value in {"driver.bindAddress": "127.0.0.1", "ui.enabled": "false"}.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    machine = session.sparkContext._gateway.proc
    yield session
    session.stop()
    processes = {machine.pid, *descendants(machine.pid)}
    machine.stdin.close()
    assert not wait_for_end(processes)


def test_the_recipe_for_spark_predicts_what_one_process_predicts(saved: Saved, spark: Any) -> None:
    frame = spark.createDataFrame(TABLE, "id int, text string").repartition(3)
    annotated = recipe("Spark")["annotate_frame"](frame, str(saved.harmless))
    rows = sorted(annotated.toLocalIterator(), key=lambda row: row.id)
    check_answers([row.asDict(recursive=True) for row in rows], saved)
    assert not list(listening_elsewhere(descendants(os.getpid())))
