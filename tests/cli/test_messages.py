"""Messages of commands name the field, what was expected, and what came."""

from pathlib import Path

import pytest
import spacy

from spacy_costner.cli.compare import read_seeds
from spacy_costner.workflows.apply.annotating import annotate
from spacy_costner.workflows.components import get_component
from spacy_costner.workflows.config.corpus_statistics import CorpusStatistics
from spacy_costner.workflows.config.label_groups import choose_groups
from spacy_costner.workflows.config.loss_blocks import parse_losses


def test_a_pipeline_without_our_component_lists_what_it_has() -> None:
    nlp = spacy.blank("xx")
    nlp.add_pipe("sentencizer")
    with pytest.raises(ValueError, match=r"'cost_sensitive_ner', got \['sentencizer'\]"):
        get_component(nlp, "ner")


def test_output_of_annotate_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text("Ana\n", encoding="utf8")
    with pytest.raises(
        ValueError, match=r"annotate: output: expected a folder, got the file .*txt"
    ):
        annotate(tmp_path / "model", [path], path)


def test_seeds_are_numbers() -> None:
    assert read_seeds("0,12") == [0, 12]
    with pytest.raises(ValueError, match=r"--seeds: expected whole numbers.*got 'a'"):
        read_seeds("a")


def test_a_wrong_loss_blames_the_option_it_came_by() -> None:
    with pytest.raises(ValueError, match=r"^`losses`: expected one of .*got 'Hinge'"):
        parse_losses("Hinge", "`losses`")
    with pytest.raises(ValueError, match=r"^`loss`: expected one of .*got 'Hinge'"):
        parse_losses("Hinge")


def test_groups_are_json(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n", encoding="utf8")
    with pytest.raises(
        ValueError, match=r"x\.csv: `groups_path`: expected JSON, {component: \[labels"
    ):
        choose_groups(CorpusStatistics(), path)
