"""Compare Presidio with our pipelines and with spaCy's `ner`: leaks, false alarms, scores, time.

    python benchmarks/pii.py CORPUS WORKPLACE [en [sparse.cfg 600]]

CORPUS is made by `scripts/make_pii_corpus.py` or has the same structure. The other arguments are
the language, the config of the linear model, and the steps of the CNNs. Pipelines in WORKPLACE are
not trained again. Requires the extra `presidio`. leaks: proportion of a doc's entities that are not
covered, mean over docs and standard error. wrong: proportion of results that overlap no entity.
exact: proportion of results with an entity's extent and label. AUC: area under the ROC curve of
scores for exact results. These are for all results of the NLP engine. The time includes all
recognizers.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy
import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from spacy.tokens import Doc, DocBin

from spacy_costner.cli.tables import text_table
from spacy_costner.integrations.presidio import CostnerNlpEngine

CONFIGS = Path(__file__).parent.parent / "configs"
PEER = "spaCy ner"
OURS = "ours, CNN"
LINEAR = "ours, linear"
ENTITIES = NerModelConfiguration().model_to_presidio_entity_mapping


class Tally:
    """The results of an analyzer on the test docs: for each doc, the proportion of entities that
    are not covered and the CPU seconds; for each result, its score, whether it is exact, and
    whether it is wrong."""

    def __init__(self, path: Path, engine: type, lang: str, labels: set[str]) -> None:
        entities = {label: ENTITIES.get(label, label) for label in labels}
        settings = NerModelConfiguration(model_to_presidio_entity_mapping=entities)
        nlp_engine = engine([{"lang_code": lang, "model_name": str(path)}], settings)
        analyzer = AnalyzerEngine(nlp_engine=nlp_engine, supported_languages=[lang])
        self.types = sorted(set(entities.values()))
        self.analyze = partial(analyzer.analyze, language=lang)
        self.leaks: list[float] = []
        self.seconds: list[float] = []
        self.results: list[tuple[float, bool, bool]] = []

    def add(self, doc: Doc) -> None:
        """Analyze the text of an annotated doc, and count the results."""
        began = time.process_time()
        self.analyze(doc.text)
        self.seconds.append(time.process_time() - began)

        results = self.analyze(doc.text, entities=self.types)
        gold: set[tuple[int, int, str]] = set()
        gold_characters: set[int] = set()
        for ent in doc.ents:
            entity_type = ENTITIES.get(ent.label_, ent.label_)
            gold.add((ent.start_char, ent.end_char, entity_type))
            gold_characters.update(range(ent.start_char, ent.end_char))
        covered: set[int] = set()
        for result in results:
            characters = range(result.start, result.end)
            covered.update(characters)
            is_exact = (result.start, result.end, result.entity_type) in gold
            is_wrong = gold_characters.isdisjoint(characters)
            self.results.append((result.score, is_exact, is_wrong))
        is_leaked = [any(token.idx not in covered for token in ent) for ent in doc.ents]
        if is_leaked:
            self.leaks.append(float(numpy.mean(is_leaked)))

    def cells(self) -> list[str]:
        """Make the cells of the table: leaks, wrong, exact, AUC, milliseconds."""
        scores, is_exact, is_wrong = (numpy.asarray(column) for column in zip(*self.results))
        leaks = 100 * numpy.asarray(self.leaks)
        standard_error = leaks.std() / len(leaks) ** 0.5
        return [
            f"{leaks.mean():.2f} ± {standard_error:.2f}",
            f"{100 * is_wrong.mean():.1f}",
            f"{100 * is_exact.mean():.1f}",
            f"{area(scores, is_exact):.3f}",
            f"{1000 * numpy.mean(self.seconds):.2f}",
        ]


def area(scores: numpy.ndarray, is_right: numpy.ndarray) -> float:
    """Compute the area under the ROC curve: the probability that a right result scores above a
    wrong one, with ties counted as half. It is computed from the ranks of the scores. Shapes: (R,)

    Mann & Whitney (1947), the statistic U."""
    _, index_of_score, n_equal = numpy.unique(scores, return_inverse=True, return_counts=True)
    # The rank of each score, starting at 1 for the lowest. Tied scores get their mean rank.
    ranks = (numpy.cumsum(n_equal) - (n_equal - 1) / 2)[index_of_score]
    mean_rank = ranks[is_right].mean()
    # The difference is the mean number of wrong results that score below a right one.
    mean_rank_among_right = (is_right.sum() + 1) / 2
    n_wrong = (~is_right).sum()
    return float((mean_rank - mean_rank_among_right) / n_wrong)


def run_once(output: Path, *arguments: object) -> Path:
    """Run a spaCy command, unless its output exists. The output path is passed as an option.
    Returns this path, which doesn't exist if a guarantee can't be made."""
    if output.exists():
        return output
    words = [str(argument) for argument in arguments]
    command = [sys.executable, "-W", "ignore", "-m", "spacy", *words, "--output", str(output)]
    is_promise = "--miss" in words  # not every guarantee can be made
    subprocess.run(command, check=not is_promise, stdout=sys.stderr)
    return output


def make_pipelines(corpus: Path, work: Path, lang: str, linear: str, steps: str) -> dict[str, Path]:
    """Train and calibrate pipelines, and make guarantees. Returns the paths of the pipelines in the
    folder `work`, by title. `linear` is the config of the linear model, `steps` the number of steps
    for the CNNs."""
    paths = ["--nlp.lang", lang, "--paths.train", corpus / "train.spacy"]
    paths += ["--paths.dev", corpus / "dev.spacy"]
    steps_and_paths = [*paths, "--training.max_steps", steps, "--training.eval_frequency", 200]
    train_peer = ["train", CONFIGS / "baseline_ner.cfg", *steps_and_paths]
    train_cnn = ["train", CONFIGS / "cnn.cfg", *steps_and_paths]
    fit_linear = ["costner", "fit", CONFIGS / linear, *paths]
    pipelines = {
        PEER: run_once(work / "ner", *train_peer) / "model-best",
        OURS: run_once(work / "cnn", *train_cnn) / "model-best",
        LINEAR: run_once(work / "linear", *fit_linear) / "model-best",
    }

    for title in (OURS, LINEAR):
        trained = pipelines[title]
        folder = trained.parent
        calibrate = ["costner", "calibrate", trained, corpus / "dev.spacy"]
        calibrated = run_once(folder / "calibrated", *calibrate)
        pipelines[title] = calibrated
        guarantee = ["costner", "guarantee", calibrated, corpus / "calibration.spacy"]
        for limit in (0.05, 0.02, 0.01):
            terms = ["--found", "covered", "--miss", limit]
            promised = run_once(folder / f"miss_{limit}", *guarantee, *terms)
            if promised.exists():
                pipelines[f"{title}, {100 * limit:g} % guaranteed"] = promised
    return pipelines


def main(
    corpus: str, work: str, lang: str = "en", linear: str = "sparse.cfg", steps: str = "600"
) -> None:
    """Make the pipelines, analyze the test docs with each, and print a row for each."""
    paths = make_pipelines(Path(corpus), Path(work), lang, linear, steps)
    docs = list(DocBin().from_disk(f"{corpus}/test.spacy").get_docs(spacy.blank(lang).vocab))
    labels: set[str] = set()
    for doc in docs:
        labels.update(ent.label_ for ent in doc.ents)
    tallies: dict[str, Tally] = {}
    for title, path in paths.items():
        engine = SpacyNlpEngine if title == PEER else CostnerNlpEngine
        tallies[title] = Tally(path, engine, lang, labels)

    # In turns, so that a busy machine slows all of them equally.
    for doc in docs:
        for tally in tallies.values():
            tally.add(doc)
    rows = [["", "leaks %", "wrong %", "exact %", "AUC", "CPU ms per text"]]
    rows += [[title, *tally.cells()] for title, tally in tallies.items()]
    print(text_table(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
