"""When the losses of a schedule are used, and what is said if the last one never is."""

import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import registry
from thinc.api import Config

from spacy_costner.losses import LossSchedule
from spacy_costner.training.stages import count_passes, find_unused_loss, passes_after_steps
from spacy_costner.types import Loss, Progress
from spacy_costner.workflows.config.checks import check
from spacy_costner.workflows.config.loss_blocks import make_loss
from spacy_costner.workflows.fitting.comparison import compare
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.variants import change_config, make_variants

from ..support.experiment import CONFIG, Experiment, save_cities
from ..support.fitting import SPARSE_CONFIG

N_DOCS, BATCH_SIZE = 10, 4
"""Ten docs in batches of four are three steps an epoch."""

BATCHER = {"@batchers": "spacy.batch_by_sequence.v1", "size": BATCH_SIZE}

UNLIMITED = {"max_epochs": 0, "max_steps": 0, "accumulate_gradient": 1, "batcher": BATCHER}

NEVER = "the last loss is never used"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ten docs, of an entity each."""
    return save_cities(tmp_path / "corpus.spacy", N_DOCS)


def schedule_block(**ends: Any) -> dict[str, Any]:
    """A schedule of two losses with these `epochs` or `steps`."""
    block = make_loss(["Sequential", "SoftmaxMargin"])
    del block["epochs"]
    return {**block, **ends}


def config_of(corpus: Path, ends: dict[str, Any], **training: Any) -> Config:
    config: Config = Config().from_str(CONFIG.format(corpus=corpus))
    loss = {"components": {"ner": {"loss": schedule_block(**ends)}}}
    settings = {"training": {**UNLIMITED, "eval_frequency": 100, **training}}
    return change_config(change_config(config, loss), settings)


def batch(sizes: list[int], docs: list[Any]) -> Iterator[list[Any]]:
    """Batches of these sizes. Docs that are left are discarded."""
    rest = iter(docs)
    for size in sizes:
        yield [*islice(rest, size)]


def test_a_pass_is_over_all_docs() -> None:
    """If docs are discarded, it takes more than an epoch."""
    docs = range(10)
    all_docs = passes_after_steps(docs, lambda docs: batch([4, 4, 2], docs), max_epochs=2)
    assert list(all_docs) == [0.4, 0.8, 1, 1.4, 1.8, 2]
    some_docs = passes_after_steps(docs, lambda docs: batch([4, 1], docs))
    assert list(islice(some_docs, 4)) == [0.4, 0.5, 0.9, 1]
    assert list(passes_after_steps(docs, lambda docs: batch([], docs))) == []


@pytest.mark.parametrize(
    ("limits", "n_passes"),
    [
        ({}, 7),
        ({"max_epochs": -1}, 7),
        ({"max_epochs": 3}, 3),
        ({"max_epochs": 9}, 7),
        ({"max_steps": 5}, 2),
        ({"max_steps": 6}, 2.4),
        ({"max_steps": 100}, 7),
        ({"max_epochs": 2, "max_steps": 100}, 2),
    ],
)
def test_passes_are_counted_until_training_ends(limits: dict[str, int], n_passes: float) -> None:
    """Up to seven are counted. spaCy's last step is the one after `max_steps`."""
    training = {**UNLIMITED, **limits}
    assert count_passes(training, lambda: range(N_DOCS), most=7) == n_passes


LIMITS = [
    ({"epochs": [2.0]}, {"max_epochs": 2}, False),
    ({"epochs": [2.0]}, {"max_epochs": 3}, True),
    ({"epochs": [2.0]}, {"max_steps": 5}, False),
    ({"epochs": [2.0]}, {"max_steps": 6}, True),
    ({"epochs": [1.5]}, {"max_epochs": 2, "max_steps": 4}, False),
    ({"epochs": [1.5]}, {"max_epochs": 2, "max_steps": 5}, True),
    ({"steps": [6]}, {"max_steps": 5}, False),
    ({"steps": [6]}, {"max_steps": 6}, True),
    ({"steps": [6]}, {"max_epochs": 2}, False),
    ({"steps": [6]}, {"max_epochs": 3}, True),
    ({"steps": [7]}, {"max_epochs": 2, "accumulate_gradient": 2}, True),
]
"""The ends of the first loss, limits of training, and whether the last loss is used."""


@pytest.mark.filterwarnings("always:.*the last loss is never used")
@pytest.mark.parametrize("ends, limits, is_used", LIMITS)
def test_an_unused_loss_is_found(
    ends: dict[str, Any],
    limits: dict[str, int],
    is_used: bool,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The losses that `spacy train` uses are recorded. It warns, and `check` finds it."""
    used: list[Loss] = []
    stage_at = LossSchedule.stage_at

    def record(schedule: LossSchedule, progress: Progress) -> Loss:
        used.append(stage_at(schedule, progress))
        return used[-1]

    monkeypatch.setattr(LossSchedule, "stage_at", record)
    config = config_of(corpus, ends, **limits)
    config.to_disk(tmp_path / "config.cfg")

    with warnings.catch_warnings(record=True) as warned:
        nlp = init_nlp(config)
    train(nlp)
    findings = check(tmp_path / "config.cfg").findings

    _, last_loss = nlp.get_pipe("ner").objective.loss.stages  # type: ignore[attr-defined]
    assert (last_loss in used) is is_used
    assert any(NEVER in str(warning.message) for warning in warned) is not is_used
    assert any(NEVER in finding.message for finding in findings) is not is_used


@pytest.mark.filterwarnings("always:.*the last loss is never used")
@pytest.mark.parametrize(
    ("ends", "limits", "n_warnings"),
    [
        ({"epochs": [2.0]}, {"max_epochs": 2}, 1),
        ({"epochs": [2.0]}, {"max_epochs": 3}, 0),
        ({"epochs": [2.0]}, {"max_steps": 6}, 1),
        ({"epochs": [2.0]}, {"max_steps": 7}, 0),
        ({"steps": [6]}, {"max_epochs": 2}, 1),
        ({"steps": [6]}, {"max_epochs": 3}, 0),
        ({"steps": [7]}, {"max_steps": 6}, 1),
    ],
)
def test_fit_warns_of_an_unused_loss(
    ends: dict[str, Any], limits: dict[str, int], n_warnings: int, corpus: Path, tmp_path: Path
) -> None:
    """Before or after training, and once. Epochs and steps can't be compared before training,
    because long docs are divided into pieces."""
    config = change_config(config_of(corpus, ends, **limits), SPARSE_CONFIG)
    with warnings.catch_warnings(record=True) as warned:
        fit(config, tmp_path / "output")
    assert [NEVER in str(warning.message) for warning in warned] == [True] * n_warnings


def test_the_message_has_the_settings_that_do_not_fit() -> None:
    schedule = registry.resolve({"loss": schedule_block(epochs=[5.0])})["loss"]
    training = {**UNLIMITED, "max_epochs": 4}
    assert find_unused_loss(schedule, training, lambda: range(N_DOCS)) == (
        "loss: expected a schedule whose last loss begins before training ends, got epochs = [5.0] "
        "with training.max_epochs = 4: the last loss is never used"
    )


def test_without_a_limit_or_a_schedule_nothing_is_read() -> None:
    """Nor with a stream of docs, which has no passes."""
    schedule = registry.resolve({"loss": schedule_block(epochs=[5.0])})["loss"]
    stream = {**UNLIMITED, "max_epochs": -1, "max_steps": 1}
    assert find_unused_loss(schedule, stream, refuse_to_read) == ""
    assert find_unused_loss(schedule, {**UNLIMITED, "max_epochs": 6}, refuse_to_read) == ""
    assert find_unused_loss(schedule, UNLIMITED, refuse_to_read) == ""
    single_loss = schedule.stages[0]
    assert find_unused_loss(single_loss, {**UNLIMITED, "max_steps": 1}, refuse_to_read) == ""


@pytest.mark.parametrize("model", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("ends", "n_warnings"), [({"epochs": [0.5, 1.5]}, 1), ({"steps": [1, 2]}, 0)]
)
def test_a_schedule_in_epochs_of_a_streamed_corpus_is_found(
    ends: dict[str, Any], n_warnings: int, model: str, corpus: Path, tmp_path: Path
) -> None:
    """`initialize` only sees the first 100 docs of a stream. It warns, and `check` finds it."""
    config = config_of(corpus, {"steps": [1]}, max_epochs=-1, max_steps=5)
    config["components"]["ner"]["loss"] = three_losses(**ends)
    if model == "sparse":
        config = change_config(config, SPARSE_CONFIG)
    config.to_disk(tmp_path / "config.cfg")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        init_nlp(config)
    findings = check(tmp_path / "config.cfg").findings

    message = (
        "loss: expected a schedule with steps, as a streamed corpus (training.max_epochs = -1) has "
        "no epochs, got epochs = [0.5, 1.5]: an epoch is as long as the docs that are read to "
        "initialize, at most 100"
    )
    messages = [str(warning.message) for warning in warned]
    assert messages.count(f"ner: {message}") == n_warnings
    assert [finding.message for finding in findings].count(message) == n_warnings
    assert not any(NEVER in text for text in messages)


def three_losses(**ends: Any) -> dict[str, Any]:
    """A schedule of three losses with these `epochs` or `steps`."""
    block = make_loss(["Sequential", "SoftmaxMargin", "Sequential"])
    del block["epochs"]
    return {**block, **ends}


def refuse_to_read() -> Iterator[Any]:
    raise AssertionError("expected that no doc is read")


@pytest.mark.parametrize(
    ("limits", "epochs"),
    [
        ({"max_epochs": 8}, [5.0]),
        ({"max_epochs": 6}, [4.0]),
        ({"max_epochs": 3}, [1.5]),
        ({"max_epochs": 9, "max_steps": 11}, [2.0]),  # 12 steps are 4 epochs
        ({"max_steps": 14}, [3.0]),  # 15 steps are 5 epochs
        ({}, [5.0]),
    ],
)
def test_losses_by_name_are_used_before_training_ends(
    limits: dict[str, int], epochs: list[float], experiment: Experiment, corpus: Path
) -> None:
    """Risk is the second loss. It has two epochs or, if there are fewer than four, half of them."""
    config_of(corpus, {"epochs": [9.0]}, **limits).to_disk(experiment.config_path)
    experiment_by_name = experiment._replace(loss_paths=["Risk"])  # type: ignore[list-item]

    (variant,) = make_variants(*experiment_by_name, seeds=[0])

    assert variant.config["components"]["ner"]["loss"]["epochs"] == epochs


def test_losses_by_name_follow_swept_limits(experiment: Experiment, corpus: Path) -> None:
    """Three losses have five, two and two epochs if training is long enough. Ends that are swept
    themselves stay."""
    config_of(corpus, {"epochs": [9.0]}).to_disk(experiment.config_path)
    names = ["SoftmaxMargin,Risk,MCEF"]
    experiment_by_name = experiment._replace(loss_paths=names)  # type: ignore[arg-type]

    def ends(sweep: dict[str, list[Any]]) -> list[list[float]]:
        variants = make_variants(*experiment_by_name, seeds=[0], sweep=sweep)
        return [variant.config["components"]["ner"]["loss"]["epochs"] for variant in variants]

    assert ends({"training.max_epochs": [9, 6]}) == [[5, 7], [2, 4]]
    assert ends({"components.ner.loss.epochs": [[1, 2], [3, 4]]}) == [[1, 2], [3, 4]]


def test_compare_refuses_a_loss_that_is_never_used(experiment: Experiment, corpus: Path) -> None:
    """The base config has the schedule."""
    config_of(corpus, {"epochs": [2.0]}).to_disk(experiment.config_path)
    config_path, _, *paths = experiment
    sweep = {"training.max_epochs": [3, 2]}
    with pytest.raises(ValueError, match=rf"^compare: max_epochs=2: loss: .*{NEVER}"):
        compare(config_path, [], *paths, sweep=sweep)
