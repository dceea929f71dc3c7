"""Settings are chosen on the development part, then the models are scored on the test part."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy
import spacy
from spacy.tokens import Doc
from thinc.types import Floats2d, FloatsXd

from spacy_costner.significance import Difference, bootstrap, difference

from ..cells import OUTPUT, Cell, Result, Runner
from ..corpora import as_examples, read_docs
from ..linear import make_linear
from ..scores import sentence_counts
from ..tagger import Block, Tagger, answers
from .plans import OPTIMIZERS, TASKS, Criterion, Plan, Setting

WEIGHTS = OUTPUT / "mce_f" / "weights"
DEVELOPMENT = 2000
"""Sentences at the end of the training data that settings are chosen on, where there is no
part for that: footnote 3."""


def sentences(task: str, part: str, limit: Optional[int]) -> Tuple[List[Doc], List[Doc]]:
    """What is learned from, and what is scored.

    task (str): The name of the task.
    part (str): "development" to choose settings, or "test".
    limit (Optional[int]): The most sentences of each file.
    """
    files, vocab = TASKS[task], spacy.blank("xx").vocab
    train = read_docs(files.path(files.train), vocab, limit)
    if part == "test":
        return train, read_docs(files.path(files.test), vocab, limit)
    if files.development is not None:
        return train, read_docs(files.path(files.development), vocab, limit)
    n_held_out = min(DEVELOPMENT, len(train) // 4)
    return train[:-n_held_out], train[-n_held_out:]


read_once = lru_cache(maxsize=1)(sentences)


def trained(
    *,
    task: str,
    part: str,
    limit: Optional[int],
    loss: Block,
    optimizer: str,
    setting: Mapping[str, Any],
    start: Optional[str] = None,
    keep: Optional[str] = None,
    seed: int = 0,
) -> Result:
    """A cell: train, and score.

    task (str), part (str), limit (Optional[int]): See `sentences`.
    loss (Block): The loss.
    optimizer (str), setting (Mapping[str, Any]): "Batch" or "Online", and its settings.
    start (Optional[str]): Under which name the weights to start from are kept; None for 0.
    keep (Optional[str]): Under which name to keep the weights.
    seed (int): For the order of the sentences.
    RETURNS (Result): The counts of each sentence, and how the training ended.
    """
    train, test = read_once(task, part, limit)
    examples = as_examples(train)
    how = OPTIMIZERS[optimizer](**setting)
    linear = make_linear(
        examples,
        features=TASKS[task].features,
        loss=loss,
        model=how.model(),
        seed=seed,
        scheme=TASKS[task].scheme,
    )
    if start is not None:
        linear.rows[:] = numpy.load(weights_of(start))
    ended = how.fit(linear, examples)
    if keep is not None:
        WEIGHTS.mkdir(parents=True, exist_ok=True)
        numpy.save(weights_of(keep), linear.rows)
    return {**scored(linear, test), "ended": ended}


def weights_of(name: str) -> Path:
    """Where weights are kept. If they are gone, but their cell isn't: delete that, too."""
    return WEIGHTS / f"{name}.npy"


def scored(linear: Tagger, docs: Sequence[Doc]) -> Result:
    """The counts of each sentence."""
    return {"counts": sentence_counts(answers(linear, docs))}


def columns(results: Sequence[Result]) -> Floats2d:
    """What `scores_of` makes scores of, for each sentence and seed.

    results (Sequence[Result]): One for each seed.
    RETURNS (FloatsXd): Shape: (D, S, 5)
    """
    counts = numpy.asarray([result["counts"] for result in results], dtype="float64")
    gold, answer, both = numpy.moveaxis(counts, -1, 0)
    exact = (gold == both) & (answer == both)
    table = numpy.stack([gold, answer, both, exact, numpy.ones_like(gold)], axis=-1)
    return table.swapaxes(0, 1)


def scores_of(sums: FloatsXd) -> Tuple[FloatsXd, FloatsXd]:
    """F, and the share of sentences with all entities right and no other, in per cent.

    sums (FloatsXd): Columns, added up over sentences. Shape: (..., 5)
    """
    gold, answer, both, exact, n = numpy.moveaxis(sums, -1, 0)
    return 200 * both / (gold + answer), 100 * exact / n


def f_of(result: Result) -> float:
    """The F of a cell, in per cent."""
    return float(scores_of(columns([result]).sum(axis=0))[0][0])


def compared(results: Sequence[Result], others: Sequence[Result]) -> List[Difference]:
    """How far mean scores over seeds are from those of another system on the same sentences:
    a paired bootstrap.

    results (Sequence[Result]), others (Sequence[Result]): One for each seed.
    RETURNS (List[Difference]): Of F and of right sentences.
    """
    both = numpy.concatenate([columns(results), columns(others)], axis=1)
    n_docs, n_systems, n_columns = both.shape
    sums = bootstrap(both.reshape(n_docs, -1)).reshape(-1, n_systems, n_columns)

    def gaps(of: FloatsXd) -> FloatsXd:
        return of[..., : len(results)].mean(axis=-1) - of[..., len(results) :].mean(axis=-1)

    return [
        difference(float(gaps(value)), gaps(sampled))
        for value, sampled in zip(scores_of(both.sum(axis=0)), scores_of(sums))
    ]


class Row(NamedTuple):
    """What came of a criterion.

    name (str): Its name.
    setting (Setting): What was chosen.
    development (Optional[float]): The F with it on the development part, if there was a choice.
    results (Sequence[Result]): What the cells of the test part returned, one for each seed.
    """

    name: str
    setting: Setting
    development: Optional[float]
    results: Sequence[Result]


class Study:
    """The experiment on a task: settings are chosen on the development part, then the models
    are trained with them on all training data and scored on the test part."""

    def __init__(self, run: Runner, task: str, plan: Plan) -> None:
        """Initialize.

        run (Runner): Runs the cells.
        task (str): The name of the task.
        plan (Plan): What is done with it.
        """
        self.run = run
        self.task = task
        self.plan = plan

    def rows(self) -> List[Row]:
        """Run all. MAP comes first."""
        by_map = self.map_row()
        return [by_map, *self.rows_of(self.plan.others, by_map.setting)]

    def map_row(self) -> Row:
        """Choose the C of MAP, and train with it: on the test part from one C to the next, which
        comes to the same weights in less time."""
        criterion = self.plan.by_map
        tried = self.run(
            [
                self.cell("development", criterion, setting, None, 0)
                for setting in criterion.settings
            ]
        )
        scores = [f_of(result) for result in tried]
        i_best = scores.index(max(scores))
        before: Optional[Setting] = None
        for setting in criterion.settings[: i_best + 1]:
            (result,) = self.run([self.cell("test", criterion, setting, before, 0)])
            before = setting
        return Row(criterion.name, criterion.settings[i_best], scores[i_best], [result])

    def rows_of(self, criteria: Sequence[Criterion], start: Setting) -> List[Row]:
        """Choose the settings of criteria, and train with these.

        criteria (Sequence[Criterion]): The criteria.
        start (Setting): That of the MAP model that they may start from.
        """
        tried = [
            (criterion, setting)
            for criterion in criteria
            for setting in criterion.settings
            if len(criterion.settings) > 1
        ]
        found = self.run([self.cell("development", *pair, start, 0) for pair in tried])
        scores = {
            (criterion.name, setting): f_of(result)
            for (criterion, setting), result in zip(tried, found)
        }
        chosen = [
            max(criterion.settings, key=lambda setting: scores.get((name, setting), 0.0))
            for criterion, name in ((criterion, criterion.name) for criterion in criteria)
        ]
        cells = [
            self.cell("test", criterion, setting, start, seed)
            for criterion, setting in zip(criteria, chosen)
            for seed in criterion.seeds
        ]
        results = iter(self.run(cells))
        return [
            Row(
                criterion.name,
                setting,
                scores.get((criterion.name, setting)),
                [next(results) for _ in criterion.seeds],
            )
            for criterion, setting in zip(criteria, chosen)
        ]

    def cell(
        self,
        part: str,
        criterion: Criterion,
        setting: Setting,
        start: Optional[Setting],
        seed: int,
    ) -> Cell:
        """The cell of a criterion, setting and seed, which may start from a MAP model."""
        name = self.name(part, criterion, setting, seed)
        settings: Dict[str, Any] = {
            "task": self.task,
            "part": part,
            "limit": self.plan.limit,
            "loss": criterion.loss,
            "optimizer": type(setting).__name__,
            "setting": setting._asdict(),
            "seed": seed,
        }
        if criterion is self.plan.by_map:
            settings["keep"] = name
        if criterion.from_map and start is not None:
            settings["start"] = self.name(part, self.plan.by_map, start, 0)
        return Cell(name, trained, settings)

    def name(self, part: str, criterion: Criterion, setting: Optional[Setting], seed: int) -> str:
        """The name of a cell, and of its weights."""
        words = f"{self.task} {part} {self.plan.limit or 'all'} {criterion.name} {setting} {seed}"
        return re.sub(r"[^\w.^-]+", "_", words)
