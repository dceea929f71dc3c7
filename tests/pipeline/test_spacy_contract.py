"""spaCy's own tests of `ner`, with our component in its place: see `in_place_of_ner.py`.

They come with the installed spaCy. Those that build its EntityRecognizer themselves, not by its
name, say nothing of ours and are not among these.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import spacy

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TIMEOUT = 600
"""In seconds."""

SAME = {
    "parser/test_add_label.py": "test_ner_labels_added_implicitly_on_update",
    "parser/test_ner.py": """
        test_issue4267 test_train_negative_deprecated test_train_empty test_empty_ner
        test_overfitting_IO[True] test_overfitting_IO[False] test_ruler_before_ner
        test_ner_before_ruler test_block_ner test_neg_annotation""",
    "pipeline/test_entity_linker.py": "test_nel_to_bytes test_scorer_links",
    "pipeline/test_pipe_factories.py": "test_pipe_factory_meta_config_cleanup",
    "pipeline/test_pipe_methods.py": """
        test_issue3880 test_replace_last_pipe test_pipe_base_class_add_label[ner] test_pipe_labels
        test_add_pipe_before_after test_pipe_methods_frozen
        test_pipe_label_data_exports_labels[ner] test_pipe_methods_initialize""",
    "pipeline/test_tok2vec.py": """
        test_replace_listeners_from_config test_tok2vec_listener_source_link_name
        test_tok2vec_listener_source_replace_listeners""",
    "serialize/test_serialize_config.py": "test_config_nlp_roundtrip",
    "serialize/test_serialize_language.py": "test_issue2482",
    "serialize/test_serialize_pipeline.py": """
        test_issue4042 test_issue4042_bug2 test_serialize_pipeline_disable_enable""",
    "test_cli.py": "test_issue7055 test_init_labels[ner]",
    "training/test_logger.py": "test_console_logger",
    "training/test_rehearse.py": "test_rehearse[ner]",
    "training/test_training.py": """
        test_issue999 test_tuple_format_implicit test_tuple_format_implicit_invalid""",
}
"""Tests that our component passes as they stand. Two more are left out:
parser/test_ner.py::test_issue2800 for its time, as 1000 labels are 4001 tags and 16 million
transitions (it passes); and pipeline/test_entity_linker.py::test_overfitting_IO_with_ner, which
ends with what an untrained entity linker has guessed."""

MOVES = "asks for `moves` or `move_names`, the transition system; a chain has tags"
BEAM = "asks the beam for scores or parses; ours come from the chain: docs/confidence.md"
GROWS = "an unknown label in a doc to predict becomes one of the model's; ours only learns labels"
NO_LABELS = "initializes without any label; ours says what is missing, as the tagger does"

DIFFERENT = {
    "parser/test_ner.py::test_issue1967[U-JOB-NAME]": MOVES,
    "parser/test_ner.py::test_issue2179": MOVES,
    "parser/test_ner.py::test_issue3209": MOVES,
    "parser/test_ner.py::test_labels_from_BILUO": MOVES,
    "parser/test_ner.py::test_accept_blocked_token": MOVES,
    "parser/test_ner.py::test_issue4313": BEAM,
    "parser/test_ner.py::test_beam_ner_scores": BEAM,
    "parser/test_ner.py::test_beam_overfitting_IO": BEAM,
    "parser/test_add_label.py::test_ner_labels_added_implicitly_on_beam_parse": BEAM,
    "parser/test_add_label.py::test_ner_labels_added_implicitly_on_greedy_parse": BEAM,
    "parser/test_add_label.py::test_ner_labels_added_implicitly_on_predict": GROWS,
    "parser/test_ner.py::test_overwrite_token": NO_LABELS,
    "parser/test_ner.py::test_beam_valid_parse": NO_LABELS,
    "parser/test_ner.py::test_ner_warns_no_lookups": NO_LABELS,
    "parser/test_ner.py::test_neg_annotation_conflict": (
        "an entity that is among the incorrect spans too stops training; ours leaves the doc out, "
        "with a warning that names it"
    ),
    "serialize/test_serialize_pipeline.py::test_issue4725_1": (
        "looks for update_with_oracle_cut_size, a setting of the transition system, in `cfg`"
    ),
}
"""Tests that our component fails, and why that is right."""

EVERY = [*(f"{file}::{name}" for file in SAME for name in SAME[file].split()), *DIFFERENT]


def run_tests_of_spacy(folder: Path) -> dict[str, str]:
    """The outcome of each test of spaCy's that built our component, by the name of the test."""
    path = folder / "outcomes.json"
    spacy_tests = Path(spacy.__file__).parent / "tests"
    command: list[str] = [sys.executable, "-m", "pytest", "-p", "tests.in_place_of_ner"]
    command += ["--outcomes", str(path), "-c", "/dev/null", "--rootdir", str(spacy_tests)]
    # Only outcomes are read, so assertions are not rewritten and tracebacks not printed.
    command += ["--assert", "plain", "--tb", "no", "-p", "no:cacheprovider", "-p", "no:warnings"]
    command += [str(spacy_tests / name) for name in EVERY]
    process = subprocess.run(command, cwd=ROOT, timeout=TIMEOUT, capture_output=True, text=True)
    assert path.exists(), process.stdout + process.stderr
    outcome_of_test: dict[str, str] = json.loads(path.read_text(encoding="utf8"))
    return outcome_of_test


def test_the_component_passes_tests_of_spacys_ner_but_for_known_reasons(tmp_path: Path) -> None:
    """If one of `DIFFERENT` passes now, move it to `SAME`. This is one test, as two workers of
    pytest would run all tests of spaCy's twice."""
    outcome_of_test = run_tests_of_spacy(tmp_path)

    unexpected = {}
    for name in EVERY:
        outcome = outcome_of_test.get(name)
        if outcome != ("failed" if name in DIFFERENT else "passed"):
            unexpected[name] = outcome
    assert not unexpected
