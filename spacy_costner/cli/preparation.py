"""Train the linear model of a config: load the pipeline and its corpora, train online, save."""

import random
from math import isfinite
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Union

from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.training.initialize import get_sourced_components
from spacy.training.loop import create_before_to_disk_callback, update_meta
from spacy.util import (
    dot_to_object,
    fix_random_seed,
    load_model_from_config,
    minibatch,
    registry,
    resolve_dot_names,
)
from spacy.vocab import Vocab
from thinc.api import Config

from ..ml import is_linear, linear_part
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import check_folder, save_folder
from ..settings import check_settings
from ..training.evaluation import without_evaluation
from ..training.online import INTERRUPTED, OnEpoch, Trained, train
from ..training.pieces import batch_pieces
from ..types import Progress

DIR_MODEL = "model-last"

NO_DEV = (
    "expected a development corpus, got none. Only online training with --calibrate or --tune "
    "does without: it holds out folds of the training corpus"
)
START = (
    "expected null without a development corpus, whose docs are held out of the training corpus: "
    "the model to start from may have seen them"
)
N_DOCS = 256
"""Number of docs that are annotated together, if the corpus isn't in memory."""

Corpus = Callable[[Language], Iterable[Example]]


class Preparation(NamedTuple):
    """A pipeline that is ready to be trained.

    nlp (Language): The pipeline, initialized.
    training (Dict[str, Any]): The block [training] of its config, resolved.
    ner (CostSensitiveNER): The component to train.
    examples (Iterable[Example]): The training corpus. If it isn't in memory, it can be read once.
    dev_corpus (Corpus): Reads the dev corpus.
    """

    nlp: Language
    training: Dict[str, Any]
    ner: CostSensitiveNER
    examples: Iterable[Example]
    dev_corpus: Corpus


def prepare(
    config: Config,
    output_path: Optional[Path],
    check: Callable[[Language, CostSensitiveNER], None],
    corpus: Optional[Corpus] = None,
    vocab: Union[Vocab, bool] = True,
    *,
    needs_dev: bool = True,
    in_memory: bool = True,
) -> Preparation:
    """Load and initialize a pipeline. A training corpus that is kept in memory is read once, for
    initialization and for training. spaCy's `init_nlp` reads it twice, and that takes longest.

    config (Config): A config for `spacy train`.
    output_path (Optional[Path]): Where the pipeline will go, as "model-last"; None if it won't be
        saved.
    check (Callable): Raises an error if the component can't be trained. Nothing has been read then.
    corpus (Optional[Corpus]): Reads the training corpus in place of the config's. There is no dev
        corpus then.
    vocab (Union[Vocab, bool]): The vocabulary of the pipeline; True for a new one.
    needs_dev (bool): Whether the config has to have a development corpus.
    in_memory (bool): Whether to keep the training corpus in memory.
    RETURNS (Preparation): The pipeline and its corpora.
    RAISES (ValueError): If another component than ours would have to be trained, there is a
        setting that nothing reads, or the output can't go there.
    """
    check_settings(config)
    if output_path is not None:
        check_folder(output_path / DIR_MODEL)
    seed = config.interpolate()["training"].get("seed")
    if seed is not None:
        fix_random_seed(seed)
    nlp = load_model_from_config(config, vocab=vocab, auto_fill=True)
    resolved = nlp.config.interpolate()
    training = registry.resolve(resolved["training"], schema=ConfigSchemaTraining)
    frozen = training["frozen_components"]
    ner = component_to_fit(nlp, frozen)
    check(nlp, ner)

    names = [training["train_corpus"], training["dev_corpus"]]
    dev_corpus: Corpus = lambda nlp: ()  # noqa: E731
    if corpus is None and has_dev(nlp):
        corpus, dev_corpus = resolve_dot_names(resolved, names)
    elif corpus is None:
        if needs_dev:
            raise ValueError(f"fit: paths.dev: {NO_DEV}")
        if resolved["initialize"]["after_init"] is not None:
            raise ValueError(f"fit: initialize.after_init: {START}")
        section, _, key = names[1].partition(".")
        del resolved[section][key]  # where null is an error
        (corpus,) = resolve_dot_names(resolved, names[:1])
    read: Corpus = corpus
    examples = list(progress(read(nlp), desc="read", unit="doc")) if in_memory else []

    sourced = [name for name in get_sourced_components(resolved) if name not in frozen]
    if sourced:
        with nlp.select_pipes(enable=sourced):
            nlp.resume_training(sgd=training["optimizer"])
    with nlp.select_pipes(disable=[*frozen, *sourced]), without_evaluation(nlp):
        nlp.initialize(lambda: examples if in_memory else read(nlp), sgd=training["optimizer"])
    before = nlp.pipe_names[: nlp.pipe_names.index(ner.name)]
    annotating = [name for name in before if name in training["annotating_components"]]
    if in_memory:
        annotate(nlp, examples, annotating)
        return Preparation(nlp, training, ner, examples, dev_corpus)
    return Preparation(nlp, training, ner, _stream(nlp, read(nlp), annotating), dev_corpus)


def has_dev(nlp: Language) -> bool:
    """Whether the config of a pipeline names a development corpus: its path isn't null."""
    config = nlp.config.interpolate()
    block = dot_to_object(config, config["training"]["dev_corpus"])
    return not isinstance(block, dict) or block.get("path", "") is not None


def annotate(nlp: Language, examples: List[Example], names: List[str]) -> None:
    """Have components annotate the predicted docs, as `spacy train` does: these are replaced."""
    if not names:
        return
    with nlp.select_pipes(enable=names):
        for eg, doc in zip(examples, list(nlp.pipe([eg.predicted for eg in examples]))):
            eg.predicted = doc


def _stream(nlp: Language, corpus: Iterable[Example], names: List[str]) -> Iterator[Example]:
    """Read a corpus with the annotation of components."""
    for batch in minibatch(corpus, N_DOCS):
        annotate(nlp, batch, names)
        yield from batch


def component_to_fit(nlp: Language, frozen: Iterable[str]) -> CostSensitiveNER:
    """The component of a pipeline that can be trained here.

    nlp (Language): The pipeline.
    frozen (Iterable[str]): Components that aren't to be trained.
    RETURNS (CostSensitiveNER): The component.
    RAISES (ValueError): If it isn't the only one to be trained, or its model is not linear.
    """
    trained: Dict[str, Any] = {
        name: pipe
        for name, pipe in nlp.pipeline
        if getattr(pipe, "is_trainable", False) and name not in frozen
    }
    if not (len(trained) == 1 and all(isinstance(p, CostSensitiveNER) for p in trained.values())):
        raise ValueError(
            "fit: nlp.pipeline: expected one component to train, of factory 'cost_sensitive_ner', "
            f"and others in training.frozen_components, got {[*trained]}"
        )
    ((name, ner),) = trained.items()
    if not is_linear(ner.model):
        raise ValueError(
            f"fit: components.{name}.model: expected spacy_costner.SparseCRF.v1, got "
            f"{nlp.config['components'][name]['model'].get('@architectures')}"
        )
    return ner


def check_end(nlp: Language) -> None:
    """Check that online training has an end.

    RAISES (ValueError): If it hasn't.
    """
    training = nlp.config["training"]
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    if not max(limits.values()) > 0 or min(limits.values()) < 0:
        raise ValueError(
            "fit: training: expected max_epochs or max_steps of at least 1, and neither below 0, "
            f"got {limits}"
        )


def train_online(
    ready: Preparation,
    *,
    n_seeds: int = 1,
    on_epoch: OnEpoch = lambda trained: None,
    cache: Optional[Path] = None,
) -> Trained:
    """Train the linear model of a pipeline by the updates of `spacy train`.

    The config's batcher makes the batches once, of pieces of long docs: see `read_pieces`. They are
    shuffled in each epoch. Training ends after the config's `max_epochs` or `max_steps`.

    ready (Preparation): The pipeline. Its weights are set.
    n_seeds (int): Number of trainings, with the batches in other orders. The weights are the mean
        of theirs.
    on_epoch (Callable): Called after each epoch.
    cache (Optional[Path]): A folder for features and targets of tokens, in place of memory.
    RETURNS (Trained): The last training.
    """
    ner, training, optimizer = ready.ner, ready.training, ready.training["optimizer"]
    features, weights = linear_part(ner.model)
    batches = batch_pieces(
        ner.model,
        ner.objective,
        ner.chain_tags,
        ready.examples,
        training["batcher"],
        random.shuffle,
        cache,
    )

    def after_epoch(trained: Trained) -> None:
        ner.cfg["progress"] = trained.progress._asdict()
        on_epoch(trained)

    start, before = weights.rows.copy(), Progress(**ner.cfg["progress"])
    total: Any = 0
    for i in range(n_seeds):
        weights.restart(start)
        trained = train(
            weights,
            ner.objective,
            batches,
            optimizer,
            max_epochs=training["max_epochs"],
            max_steps=training["max_steps"],
            dropout=features.dropout,
            progress=before,
            on_epoch=after_epoch,
            desc=f"train {i + 1}/{n_seeds}" if n_seeds > 1 else "train",
        )
        # The mean of several is computed in float64.
        total = total + weights.averaged(optimizer).astype("float64" if n_seeds > 1 else "float32")
        if trained.reason == INTERRUPTED:
            break
    ner.cfg["progress"] = trained.progress._asdict()
    weights.restart((total / (i + 1)).astype("float32"))
    return trained


def save(ready: Preparation, scores: Dict[str, Any], loss: float, output_path: Path) -> Path:
    """Save a trained pipeline with its scores and the loss of the component, if it is known, as
    "model-last" in the output folder. Returns its path."""
    losses = {ready.ner.name: loss} if isfinite(loss) else {}
    update_meta(ready.training, ready.nlp, {"other_scores": scores, "losses": losses})
    path = output_path / DIR_MODEL
    before_to_disk = create_before_to_disk_callback(ready.training["before_to_disk"])
    save_folder(path, before_to_disk(ready.nlp).to_disk)
    return path
