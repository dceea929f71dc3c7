"""Before and after a fit: load the pipeline and its corpora, evaluate, save."""

from math import isfinite
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.training.initialize import get_sourced_components
from spacy.training.loop import create_before_to_disk_callback, update_meta
from spacy.util import (
    _pipe,
    dot_to_object,
    fix_random_seed,
    load_model_from_config,
    minibatch,
    registry,
    resolve_dot_names,
)
from spacy.vocab import Vocab
from thinc.api import Config

from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import check_folder, save_folder
from ..settings import check_settings
from ..training.evaluation import without_evaluation

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


def no_docs(nlp: Language) -> Iterable[Example]:
    """A corpus without docs."""
    return ()


class Preparation(NamedTuple):
    """A pipeline that is ready to be fitted.

    nlp (Language): The pipeline, initialized.
    training (Dict[str, Any]): The block [training] of its config, resolved.
    ner (CostSensitiveNER): The component to fit.
    examples (Iterable[Example]): The training corpus. If it isn't in memory, it is read when it is
        gone through, once.
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
    """Prepare a pipeline for fitting. A training corpus that is kept in memory is read once, for
    initialization and for training, which spaCy's `init_nlp` doesn't do; that takes longest.

    config (Config): A config for `spacy train`.
    output_path (Optional[Path]): Where the pipeline will go, as "model-last"; None if it won't be
        saved.
    check (Callable): Raises an error if the component can't be fitted so. Nothing has been read
        then.
    corpus (Optional[Corpus]): Reads the training corpus in place of the config's. The config's dev
        corpus isn't used then: there is none.
    vocab (Union[Vocab, bool]): That of the pipeline; True for a new one.
    needs_dev (bool): Whether the config has to have a development corpus.
    in_memory (bool): Whether to keep the training corpus in memory.
    RETURNS (Preparation): The pipeline and what belongs to it.
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
    ner = component_to_fit(nlp, training["frozen_components"])
    check(nlp, ner)
    train_corpus, dev_corpus = (corpus, no_docs) if corpus else _corpora(nlp, training, needs_dev)
    examples: List[Example] = []
    if in_memory:
        examples = list(progress(train_corpus(nlp), desc="read", unit="doc"))
    sourced = [
        name
        for name in get_sourced_components(resolved)
        if name not in training["frozen_components"]
    ]
    if sourced:
        with nlp.select_pipes(enable=sourced):
            nlp.resume_training(sgd=training["optimizer"])
    with (
        nlp.select_pipes(disable=[*training["frozen_components"], *sourced]),
        without_evaluation(nlp),
    ):
        nlp.initialize(
            lambda: examples if in_memory else train_corpus(nlp), sgd=training["optimizer"]
        )
    names = training["annotating_components"]
    if not in_memory:
        read = _read(nlp, train_corpus(nlp), names, before=ner.name)
        return Preparation(nlp, training, ner, read, dev_corpus)
    annotate(nlp, examples, names, before=ner.name)
    return Preparation(nlp, training, ner, examples, dev_corpus)


def _corpora(nlp: Language, training: Dict[str, Any], needs_dev: bool) -> Tuple[Corpus, Corpus]:
    """The readers of the training corpus and of the development corpus."""
    resolved, name = nlp.config.interpolate(), training["dev_corpus"]
    if has_dev(nlp):
        train, dev = resolve_dot_names(resolved, [training["train_corpus"], name])
        return train, dev
    if needs_dev:
        raise ValueError(f"fit: paths.dev: {NO_DEV}")
    if nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(f"fit: initialize.after_init: {START}")
    section, _, key = name.partition(".")
    del resolved[section][key]  # where null is an error
    (train,) = resolve_dot_names(resolved, [training["train_corpus"]])
    return train, no_docs


def has_dev(nlp: Language) -> bool:
    """Whether the config of a pipeline names a development corpus: its path isn't null."""
    config = nlp.config.interpolate()
    block = dot_to_object(config, config["training"]["dev_corpus"])
    return not isinstance(block, dict) or block.get("path", "") is not None


def _read(
    nlp: Language, corpus: Iterable[Example], names: Sequence[str], *, before: str
) -> Iterator[Example]:
    """Read a corpus with the annotation of components: see `annotate`."""
    for batch in minibatch(corpus, N_DOCS):
        annotate(nlp, batch, names, before=before)
        yield from batch


def component_to_fit(nlp: Language, frozen: Sequence[str]) -> CostSensitiveNER:
    """The component of a pipeline that can be fitted.

    nlp (Language): The pipeline.
    frozen (Sequence[str]): Components that aren't to be trained.
    RETURNS (CostSensitiveNER): The component.
    RAISES (ValueError): If it isn't the only one to be trained, or its model won't do.
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
    if ner.model.name != "sparse_crf":
        raise ValueError(
            f"fit: components.{name}.model: expected spacy_costner.SparseCRF.v1, got "
            f"{nlp.config['components'][name]['model'].get('@architectures')}"
        )
    return ner


def annotate(nlp: Language, examples: List[Example], names: Sequence[str], *, before: str) -> None:
    """Have components annotate the predicted docs, as `spacy train` does.

    nlp (Language): The pipeline.
    examples (List[Example]): The examples; their predicted docs are replaced.
    names (Sequence[str]): The annotating components.
    before (str): The component that the annotation is for. It isn't among them.
    """
    for name in nlp.pipe_names[: nlp.pipe_names.index(before)]:
        if name in names:
            pipe, settings = nlp.get_pipe(name), {"batch_size": nlp.batch_size}
            docs = [eg.predicted for eg in examples]
            annotated = _pipe(docs, pipe, name, nlp.default_error_handler, settings)
            for eg, doc in zip(examples, list(annotated)):
                eg.predicted = doc


def save(ready: Preparation, scores: Dict[str, Any], loss: float, output_path: Path) -> Path:
    """Save a fitted pipeline, with its scores.

    ready (Preparation): The pipeline.
    scores (Dict[str, Any]): Its scores.
    loss (float): The loss of the component; left out where it isn't known.
    output_path (Path): Where it goes, as "model-last".
    RETURNS (Path): Where it is.
    """
    losses = {ready.ner.name: loss} if isfinite(loss) else {}
    update_meta(ready.training, ready.nlp, {"other_scores": scores, "losses": losses})
    path = output_path / DIR_MODEL
    before_to_disk = create_before_to_disk_callback(ready.training["before_to_disk"])
    save_folder(path, before_to_disk(ready.nlp).to_disk)
    return path
