"""The answers of teachers: docs with entities, their confidence and, if asked for, soft targets."""

import sys
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import (
    Annotated,
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

import numpy
import typer
from spacy.cli._util import import_code, setup_gpu, show_validation_error
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, load_model, load_model_from_config, minibatch, resolve_dot_names
from spacy.vocab import Vocab
from thinc.api import Config
from typer import Argument, Option

from ..metrics import text_table
from ..pipeline.annotations import Confidence
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import read_docs, read_tasks, task_to_doc
from ..readers.context import DEFAULTS, Context, CorpusInfo
from ..readers.files import shown
from ..readers.texts import is_text, read_lines
from ..saving import check_folder, save_file
from ..settings import check_overrides
from ..training import soft_targets
from ..training.online import OnEpoch
from ..training.targets import WEIGHT
from .fit import fit
from .options import CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .runs import fingerprint

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` of what teachers take for entities, with their confidence."""

JSONL = (".jsonl", ".json")
LEAST = 0.05
"""Entities of a lower probability that a teacher doesn't predict are left out."""

N_DOCS = 250
"""The docs of a file of answers."""

Scores = Dict[Tuple[int, int, str], float]
"""Entities by first token, token after the last, and label, with their confidence."""

OnAnswers = Callable[[int], None]
"""Called with a number of docs for which there are answers."""


def is_file(teacher: str) -> bool:
    """Whether a teacher is a file of answers, and not a pipeline."""
    return Path(teacher).suffix in JSONL


def prepare(nlp: Language) -> Language:
    """Have the components of a teacher write probabilities, of other likely entities, too."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            pipe.set_confidence(Confidence(alternatives=LEAST))
    return nlp


def chain_of(nlp: Language) -> CostSensitiveNER:
    """The component that has the distribution of a teacher.

    RAISES (ValueError): If there isn't one.
    """
    found = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if len(found) != 1:
        raise ValueError(
            "soft: expected teachers with one cost_sensitive_ner, whose distribution is known, got "
            f"the pipeline {nlp.pipe_names}"
        )
    return found[0]


def read_raw(nlp: Language, paths: Sequence[Path]) -> Iterator[Doc]:
    """Read texts. Entities of annotated corpora are not used.

    nlp (Language): The pipeline whose tokenizer is used for texts without tokens.
    paths (Sequence[Path]): Text files, a doc per line, or what `read_docs` reads.
    YIELDS (Doc): The docs, without annotation but for the starts of sentences.
    """
    for path in paths:
        if is_text(path):
            yield from read_lines(nlp, path)
        else:
            yield from (copy(doc, nlp.vocab) for doc in read_docs(nlp, path, info=CorpusInfo()))


def copy(doc: Doc, vocab: Vocab) -> Doc:
    """A doc of the same tokens and sentences, without other annotation."""
    spaces = None if doc.has_unknown_spaces else [bool(token.whitespace_) for token in doc]
    starts: List[Union[bool, int, None]] = [token.is_sent_start for token in doc]
    return Doc(vocab, words=[token.text for token in doc], spaces=spaces, sent_starts=starts)


def answer(teachers: Sequence[Language], docs: Sequence[Doc], *, soft: bool = False) -> List[Doc]:
    """Have teachers annotate docs.

    teachers (Sequence[Language]): The pipelines: see `prepare`.
    docs (Sequence[Doc]): The docs. Their annotation is not used.
    soft (bool): Whether to compute soft targets.
    RETURNS (List[Doc]): Docs with the entities that a single teacher predicts or, of several, those
        whose mean probability is above one half. `read_scores` reads their probabilities.
    """
    found = [list(nlp.pipe([copy(doc, nlp.vocab) for doc in docs])) for nlp in teachers]
    answers = [copy(doc, doc.vocab) for doc in docs]
    for i, doc in enumerate(answers):
        scores = mean_scores([of_teacher[i] for of_teacher in found])
        ents = entities(found[0][i]) if len(teachers) == 1 else majority(scores)
        doc.set_ents([Span(doc, *entity) for entity in ents])
        write_scores(doc, scores)
    if soft:
        add_soft_targets(teachers, found, answers)
    return answers


def add_soft_targets(
    teachers: Sequence[Language], found: Sequence[List[Doc]], answers: Sequence[Doc]
) -> None:
    """Write the soft targets of teachers to docs; of several, the mean of their distributions."""
    saved = []
    for nlp, docs in zip(teachers, found):
        posterior = chain_of(nlp).posterior(docs)
        saved.append(list(soft_targets.expectations(posterior.potentials, posterior.tags)))
    for i, doc in enumerate(answers):
        doc.user_data[soft_targets.KEY] = soft_targets.mean([each[i] for each in saved])


def entities(doc: Doc) -> List[Tuple[int, int, str]]:
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> Scores:
    """The mean confidence of each entity over teachers: 1 where a teacher predicts it without a
    score, 0 where it isn't among the likely ones."""
    total: Scores = {}
    for doc in docs:
        own = {**dict.fromkeys(entities(doc), 1.0), **read_scores(doc)}
        for entity, score in own.items():
            total[entity] = total.get(entity, 0.0) + score / len(docs)
    return total


def read_scores(doc: Doc) -> Scores:
    """The scores of spans, of any group that has them in its `attrs`, as those of spaCy's spancat
    and of `span._.confidence` do."""
    return {
        (span.start, span.end, span.label_): float(score)
        for group in doc.spans.values()
        if group.attrs.get("scores") is not None
        for span, score in zip(group, group.attrs["scores"])
    }


def majority(scores: Scores) -> List[Tuple[int, int, str]]:
    """The entities that are more probable than not. They don't overlap, as each teacher gives the
    entities of a token probabilities that sum to 1 at most."""
    chosen: List[Tuple[int, int, str]] = []
    for start, end, label in sorted(scores, key=lambda entity: -scores[entity]):
        is_free = all(end <= other[0] or other[1] <= start for other in chosen)
        if scores[start, end, label] > 0.5 and is_free:
            chosen.append((start, end, label))
    return chosen


def write_scores(doc: Doc, scores: Scores) -> None:
    """Write the scores of spans, some of which are entities."""
    spans, attrs = [Span(doc, *entity) for entity in scores], {"scores": [*scores.values()]}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def save_answers(
    folder: Path,
    raw: Iterable[Doc],
    make: Callable[[List[Doc]], List[Doc]],
    on_answers: OnAnswers,
) -> List[Path]:
    """Save the answers for docs, a file for each `N_DOCS` of them. Files that are there are used.

    folder (Path): Where they go. Files are written under another name and renamed.
    raw (Iterable[Doc]): The docs.
    make (Callable): Makes the answers for docs.
    on_answers (Callable): Called for each file.
    RETURNS (List[Path]): The files.
    """
    paths: List[Path] = []
    for docs in minibatch(raw, N_DOCS):
        paths.append(folder / f"{len(paths):06}.spacy")
        if not paths[-1].exists():
            save_docs(paths[-1], make(docs))
        on_answers(len(docs))
    return paths


def save_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Save docs with their user data."""
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)


def read_file(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read answers from JSONL, as anything may have made them: see `readers.tasks`. A span may have
    a score, from 0 to 1.

    nlp (Language): The pipeline whose tokenizer is used for texts without tokens.
    path (Path): The file.
    YIELDS (Doc): The docs, as those of `answer`.
    RAISES (CorpusError): If it can't be read, or a score is no such number.
    """
    context = Context(nlp, DEFAULTS, CorpusInfo())
    for place, task in read_tasks(path):
        doc, scores = task_to_doc(task, place, context), {}
        for span in task.spans or ():
            score, aligned = span.extra.get("score", 1.0), doc.char_span(span.start, span.end)
            if type(score) not in (int, float) or not 0 <= score <= 1:
                raise place.refuse(f"score: expected a number from 0 to 1, got {shown(score)}")
            if aligned is not None:
                scores[aligned.start, aligned.end, span.label] = float(score)
        write_scores(doc, scores)
        if len(doc):
            yield doc


def leave_out_uncertain(doc: Doc, min_confidence: float) -> Tuple[int, int]:
    """Set entities whose confidence is below a minimum to missing, with all their tokens, and so
    those that are not predicted whose confidence is above 1 less that minimum.

    doc (Doc): An answer. It is changed.
    min_confidence (float): The minimum.
    RETURNS (Tuple[int, int]): The number of entities that are left, and of those that are not.
    """
    scores, ents = read_scores(doc), entities(doc)
    sure = [entity for entity in ents if scores.get(entity, 1.0) >= min_confidence]
    doubtful = doc.to_array("ENT_IOB") == 0
    for start, end, label in {*ents, *scores} - {*sure}:
        if (start, end, label) in ents or scores[start, end, label] > 1 - min_confidence:
            doubtful[start:end] = True
    for start, end, _ in sure:
        doubtful[start:end] = False
    missing = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(doubtful)]
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing)
    return len(sure), len(ents) - len(sure)


Corpus = Callable[[Language], Iterable[Example]]

SPARSE = "spacy_costner.SparseCRF.v1"


class Row(NamedTuple):
    """A teacher, all teachers, or the student, on the dev corpus.

    name (str): Its name.
    precision, recall, f_score (float): Its scores.
    tokens_per_second (float): Of the whole pipeline.
    megabytes (float): The size of its files.
    """

    name: str
    precision: float
    recall: float
    f_score: float
    tokens_per_second: float
    megabytes: float


class Distilled(NamedTuple):
    """A student that was trained and saved.

    path (Path): Where it is.
    n_docs (int): Number of docs with answers.
    n_entities (int): Number of entities in them that the student learned from.
    n_missing (int): Number of entities in them that are missing, as their confidence is too low.
    rows (List[Row]): The scores of teachers and student on the dev corpus.
    """

    path: Path
    n_docs: int
    n_entities: int
    n_missing: int
    rows: List[Row]


class Options(NamedTuple):
    """How to distill.

    soft (bool): Whether the student learns the probabilities of the teachers' paths in place of
        their entities.
    min_confidence (float): Entities with a lower confidence are missing annotation.
    gold_path (Optional[Path]): An annotated corpus that the student learns from, too.
    gold_weight (float): The weight of its docs.
    n_seeds (int): See `fit`.
    """

    soft: bool = False
    min_confidence: float = 0.0
    gold_path: Optional[Path] = None
    gold_weight: float = 1.0
    n_seeds: int = 1


def distill(
    teachers: Sequence[str],
    config: Config,
    raw_paths: Sequence[Path],
    output_path: Path,
    options: Options = Options(),  # noqa: B008
    *,
    on_answers: OnAnswers = lambda _: None,
    on_epoch: OnEpoch = lambda _: None,
) -> Distilled:
    """Train a student on what teachers predict for unlabelled text, and save it.

    teachers (Sequence[str]): Pipelines that set `doc.ents`, packages or folders; or one JSONL file
        of texts with entities, which anything has made.
    config (Config): The student's config, for `spacy train`. Its `paths.train` will be replaced.
    raw_paths (Sequence[Path]): The text: see `read_raw`. None with a JSONL file.
    output_path (Path): The folder of the answers, the corpus made of them, and the student.
    options (Options): How to distill.
    on_answers (Callable): Called with the answers, as they are made.
    on_epoch (Callable): See `fit`.
    RETURNS (Distilled): Where the student is, and scores.
    RAISES (ValueError): If arguments don't go together, or with the teachers or the student.
    """
    config = config.copy()
    check(teachers, config, raw_paths, options)
    for name in ("model-last", "model-best"):
        check_folder(output_path / name)
    names = [name for name in teachers if not is_file(name)]
    pipelines = [prepare(load_model(name)) for name in names]
    student = load_model_from_config(config, auto_fill=True)
    files = make_answers(
        teachers, pipelines, student, raw_paths, output_path, options.soft, on_answers
    )
    corpus, n_docs, n_entities, n_missing = make_corpus(student, files, output_path, options)
    config["paths"]["train"] = str(corpus)
    path = train_student(config, output_path, options.n_seeds, on_epoch)
    rows = compare(names, pipelines, path)
    return Distilled(path, n_docs, n_entities, n_missing, rows)


def check(
    teachers: Sequence[str], config: Config, raw_paths: Sequence[Path], options: Options
) -> None:
    """Check the arguments before any work.

    RAISES (ValueError): If they don't go together.
    """
    from_file = [name for name in teachers if is_file(name)]
    if from_file and (len(teachers) > 1 or raw_paths):
        raise ValueError(
            f"teacher: expected a file of answers without other teachers and raw text, got "
            f"{[*teachers, *map(str, raw_paths)]}"
        )
    if not from_file and not raw_paths:
        raise ValueError("raw: expected files of text for the teacher to annotate, got none")
    if options.soft and (from_file or options.min_confidence):
        got = from_file[0] if from_file else f"min_confidence {options.min_confidence}"
        raise ValueError(f"soft: expected pipelines as teachers and no min_confidence, got {got}")
    if options.n_seeds > 1 and not is_linear(config):
        raise ValueError(f"seeds: expected 1 for a student without {SPARSE}, got {options.n_seeds}")
    if "${paths.train}" not in config.to_str(interpolate=False):
        raise ValueError("student: expected a config whose training corpus is ${paths.train}")


def is_linear(config: Config) -> bool:
    """Whether the student is a linear model, which `fit` trains."""
    models = [block.get("model", {}) for block in config["components"].values()]
    return SPARSE in [model.get("@architectures") for model in models]


def make_answers(
    teachers: Sequence[str],
    pipelines: Sequence[Language],
    student: Language,
    raw_paths: Sequence[Path],
    output_path: Path,
    soft: bool,
    on_answers: OnAnswers,
) -> List[Path]:
    """Save the answers of teachers, in a folder with the fingerprint of teachers and text. What is
    there from an earlier run is used.

    RAISES (ValueError): If the teachers have no soft targets and are to have, or other labels.
    """
    if soft:
        chain_of(student)
        labels = {frozenset(chain_of(nlp).labels) for nlp in pipelines}
        if len(labels) > 1:
            raise ValueError(
                f"soft: expected teachers with the same labels, got {[*map(sorted, labels)]}"
            )
    places = [str(nlp.path) for nlp in pipelines] or list(teachers)
    configs = [nlp.config.to_str() for nlp in pipelines]
    key = fingerprint(places, configs, [*map(str, raw_paths)], soft)
    folder = output_path / f"answers-{key[:12]}"
    if not pipelines:
        docs = read_file(student, Path(teachers[0]))
        return save_answers(folder, docs, lambda docs: docs, on_answers)
    docs = read_raw(pipelines[0], raw_paths)
    return save_answers(folder, docs, lambda docs: answer(pipelines, docs, soft=soft), on_answers)


def make_corpus(
    student: Language, files: Sequence[Path], output_path: Path, options: Options
) -> Tuple[Path, int, int, int]:
    """Make a training corpus of answers and annotated docs.

    RETURNS (Tuple[Path, int, int, int]): Its folder, and the numbers of `Distilled`.
    RAISES (ValueError): If there are no answers, or all are of confidence 1 and may not be.
    """
    folder, scores = output_path / "train", {1.0}
    n_docs = n_entities = n_missing = 0
    for old in folder.glob("*.spacy"):
        old.unlink()
    for file in files:
        docs = list(DocBin().from_disk(file).get_docs(student.vocab))
        n_docs += len(docs)
        for doc in docs:
            scores.update(read_scores(doc).values())
            kept, left_out = leave_out_uncertain(doc, options.min_confidence)
            n_entities, n_missing = n_entities + kept, n_missing + left_out
        save_docs(folder / file.name, docs)
    if not n_docs:
        raise ValueError("expected text for the teacher to annotate, got no docs")
    if options.min_confidence and scores == {1.0}:
        raise ValueError(
            "min_confidence: expected a teacher with confidences, such as a cost_sensitive_ner, "
            "several teachers, or spans with a score in JSONL, got none below 1"
        )
    if options.gold_path is not None:
        gold = list(read_docs(student, options.gold_path))
        for doc in gold:
            doc.user_data[WEIGHT] = options.gold_weight
        save_docs(folder / "gold.spacy", gold)
    return folder, n_docs, n_entities, n_missing


def train_student(config: Config, output_path: Path, n_seeds: int, on_epoch: OnEpoch) -> Path:
    """Train and save a student: a linear model as `costner fit --online` does, another one as
    `spacy train` does.

    RETURNS (Path): Where it is.
    """
    if is_linear(config):
        return fit(config, output_path, online=True, n_seeds=n_seeds, on_epoch=on_epoch).path
    train(init_nlp(config), output_path, stdout=sys.stderr)
    return output_path / "model-best"


def compare(teachers: Sequence[str], pipelines: Sequence[Language], path: Path) -> List[Row]:
    """Evaluate teachers and student on the student's dev corpus.

    teachers (Sequence[str]): The names of the teachers that are pipelines.
    pipelines (Sequence[Language]): The teachers, as they annotate.
    path (Path): The student.
    RETURNS (List[Row]): The teachers; all together, if there are several; the student.
    """
    nlp = load_model(path)
    config = nlp.config.interpolate()
    (corpus,) = resolve_dot_names(config, [config["training"]["dev_corpus"]])
    rows = [evaluate(name, load_model(name), corpus) for name in teachers]
    if len(rows) > 1:
        rows.append(evaluate_together(pipelines, rows, corpus))
    return [*rows, evaluate("student", nlp, corpus)]


def evaluate(name: str, nlp: Language, corpus: Corpus) -> Row:
    """Evaluate a pipeline."""
    examples = list(corpus(nlp))
    begin = perf_counter()
    docs = list(nlp.pipe([eg.predicted for eg in examples]))
    speed = sum(map(len, docs)) / (perf_counter() - begin)
    size = sum(file.stat().st_size for file in nlp.path.rglob("*") if file.is_file()) / 1e6
    return Row(name, *score(docs, examples), speed, size)


def evaluate_together(teachers: Sequence[Language], rows: Sequence[Row], corpus: Corpus) -> Row:
    """Evaluate the mean of teachers, each of which has its row."""
    examples = list(corpus(teachers[0]))
    docs = answer(teachers, [eg.predicted for eg in examples])
    seconds = sum(1 / row.tokens_per_second for row in rows)
    size = sum(row.megabytes for row in rows)
    return Row("all teachers", *score(docs, examples), 1 / seconds, size)


def score(docs: Iterable[Doc], examples: Iterable[Example]) -> Tuple[float, float, float]:
    """Precision, recall and F-score; 0 if nothing is annotated."""
    scores = get_ner_prf([Example(doc, eg.reference) for doc, eg in zip(docs, examples)])
    precision, recall, f_score = (scores[f"ents_{name}"] or 0.0 for name in "prf")
    return precision, recall, f_score


def distill_cli(
    ctx: typer.Context,
    teacher: Annotated[
        str,
        Argument(help="Pipeline that sets doc.ents: a package or a folder; or its answers, JSONL"),
    ],
    config_path: Annotated[Path, Argument(help="Config of the student", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for answers and student")
    ],
    raw: Annotated[
        Optional[List[str]], Argument(help="Text: .txt, a doc per line, or a corpus of any format")
    ] = None,
    others: Annotated[
        Optional[List[str]], Option("--teacher", "-t", help="Another teacher. Repeatable")
    ] = None,
    soft: Annotated[
        bool, Option("--soft", help="Learn the probabilities of the teachers, not their entities")
    ] = False,
    min_confidence: Annotated[
        float,
        Option("--min-confidence", help="Less certain entities are missing, not O", min=0, max=1),
    ] = 0.0,
    gold_path: Annotated[
        Optional[Path], Option("--gold", help="Annotated corpus to learn from, too", exists=True)
    ] = None,
    gold_weight: Annotated[float, Option("--gold-weight", help="Its docs' weight", min=0)] = 1.0,
    n_seeds: Annotated[
        int, Option("--seeds", help="Train a linear student so many times: see `fit`", min=1)
    ] = 1,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Distill a teacher, such as a transformer, into a student, such as a linear model: the teacher
    annotates text, and the student is trained on that. Answers are kept in the output folder, and
    a run that was interrupted goes on where it was. Override settings of the student as in
    `spacy train`, e.g. --paths.dev ./dev.spacy.
    """
    raw_paths, ctx.args = split_overrides([*(raw or ()), *ctx.args])
    overrides = read_overrides(ctx)
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    options = Options(soft, min_confidence, gold_path, gold_weight, n_seeds)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        with progress(desc="teacher", unit="doc") as bar:
            teachers = [teacher, *(others or ())]
            result = distill(
                teachers, config, raw_paths, output_path, options, on_answers=bar.update
            )
    print_result(result, describe(result), print_json, result.path)


def split_overrides(arguments: List[str]) -> Tuple[List[Path], List[str]]:
    """Paths, and settings of the config: "--name value" or "--name=value"."""
    paths: List[Path] = []
    settings: List[str] = []
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            paths.append(Path(argument))
        elif "=" in argument:
            settings.append(argument)
        else:
            settings += [argument, *islice(rest, 1)]
    return paths, settings


def describe(result: Distilled) -> str:
    """The result as text, with a table."""
    rows = [
        [
            row.name,
            *(f"{100 * value:.2f}" for value in row[1:4]),
            f"{row.tokens_per_second:,.0f}",
            f"{row.megabytes:.1f}",
        ]
        for row in result.rows
    ]
    missing = f"; {result.n_missing:,} are missing, being uncertain" if result.n_missing else ""
    return (
        f"{result.n_docs:,} docs with {result.n_entities:,} entities of the teacher{missing}\n\n"
        + text_table([["dev", "P", "R", "F", "tokens/s", "MB"], *rows])
    )
