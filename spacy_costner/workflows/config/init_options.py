"""The options of `init`, and checks for valid combinations."""

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Literal

from spacy.util import get_lang_class, is_package

from ...readers import DEFAULTS, ReadOptions
from ..vectors import DIR_VECTORS
from .aims import parse_aim

Model = Literal["linear", "cnn", "hybrid", "transformer"]

Decoding = Literal["viterbi", "threshold", "min-cost"]

MISTAKES = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
"""The kinds of mistakes whose costs can be set by options."""


@dataclass(frozen=True)
class InitOptions:
    """The options of `init`. If an option is None, `init` chooses its value: see docs/init.md.
    Costs are per token.

    output_path (Path): Path of the config, used in the commands in its header.
    model (Literal["linear", "cnn", "hybrid", "transformer"]): Type of model.
    lang (str): Language code.
    train_path (Path | None): Training corpus in any format, used to choose sizes.
    dev_path (Path | None): Development corpus in any format.
    aim (str | None): f (best F), cost (lowest cost), guarantee (a guaranteed miss rate),
        precision=0.9 (best recall with at least this precision) or recall=0.9.
    miss (float | None): Cost of a missed entity, per token.
    false_alarm (float | None): Cost of a false alarm, per token.
    wrong_label (float | None): Cost of a wrong label, per token.
    wrong_boundary (float | None): Cost of a wrong boundary with the right label, per token.
    tree_path (Path | None): Label tree, a JSON or YAML file: a wrong label costs its distance in
        the tree.
    tree_by_prefix (str | None): Separator in labels, such as _: creates a label tree in which each
        label is a child of its prefix, and writes it to `tree_path`, by default to tree.json next
        to the config.
    cost (str | None): Cost of each pair of labels: hamming, zero-one or a CSV file.
    loss (str | None): Name of the loss, or several names separated by commas, to use one after
        another.
    decoding (Literal["viterbi", "threshold", "min-cost"] | None): How entities are chosen.
    inner_nodes (bool): Also predict inner nodes of the tree.
    spans_key (str | None): Span group for entities, which may overlap, instead of doc.ents.
    groups_path (Path | None): JSON file, {component: [labels]}: labels of different components may
        overlap.
    transformer (str | None): Name or folder of the transformer.
    vectors (str | None): Package or folder of a pipeline whose static vectors are used as input.
    raw_paths (list[Path] | None): Unannotated text: learn vectors from it and from `train_path`,
        and save them to the folder vectors next to the config. See `learn_vectors`.
    reading (ReadOptions): Options for reading the corpora, saved in the config.
    force (bool): Overwrite an existing tree file and vectors folder.
    command (str): The command that creates the config, shown in its header.
    """

    output_path: Path = Path("config.cfg")
    _: KW_ONLY
    model: Model = "linear"
    lang: str = "en"
    train_path: Path | None = None
    dev_path: Path | None = None
    aim: str | None = None
    miss: float | None = None
    false_alarm: float | None = None
    wrong_label: float | None = None
    wrong_boundary: float | None = None
    tree_path: Path | None = None
    tree_by_prefix: str | None = None
    cost: str | None = None
    loss: str | None = None
    decoding: Decoding | None = None
    inner_nodes: bool = False
    spans_key: str | None = None
    groups_path: Path | None = None
    transformer: str | None = None
    vectors: str | None = None
    raw_paths: list[Path] | None = None
    reading: ReadOptions = DEFAULTS
    force: bool = False
    command: str = "python -m spacy costner init"

    @property
    def vectors_folder(self) -> Path:
        """The folder for vectors learned from raw text."""
        return self.output_path.with_name(DIR_VECTORS)

    @property
    def mistake_costs(self) -> dict[str, float]:
        """The given costs, keyed by kind of mistake: see `MISTAKES`."""
        costs = {mistake: getattr(self, mistake) for mistake in MISTAKES}
        return {mistake: cost for mistake, cost in costs.items() if cost is not None}

    def completed(self) -> "InitOptions":
        """Fill in the options that can be derived from other options without the corpus."""
        options = self
        if options.spans_key is None and options.groups_path is not None:
            options = replace(options, spans_key="sc")  # the default of spaCy's SpanCategorizer
        if options.tree_path is None and options.tree_by_prefix is not None:
            options = replace(options, tree_path=options.output_path.with_name("tree.json"))
        if options.raw_paths:
            options = replace(options, vectors=str(options.vectors_folder))
        return options


def check_options(options: InitOptions) -> None:
    """Run the checks that don't require the corpus.

    RAISES (ValueError): If the aim is unknown, the pipeline with vectors is missing, options can't
        be combined, or the vectors folder already exists.
    RAISES (ImportError): If spaCy doesn't support the language.
    """
    get_lang_class(options.lang)  # raises an error for an unknown language
    if options.transformer is not None and options.model != "transformer":
        raise ValueError(
            f"`transformer`: expected `model` transformer, got `model` {options.model}"
        )
    if options.raw_paths:
        check_raw_option(options.vectors, options.model)
        if not options.force:
            refuse_existing(options.vectors_folder)
    elif options.vectors is not None:
        check_vectors_option(options.vectors, options.model)
    if options.aim is not None:
        # Raises an error if the text is neither one of these two names nor an aim of `tune`.
        parse_aim(options.aim, "cost", "guarantee", option="`aim`")
    if options.tree_by_prefix is not None and options.train_path is None:
        raise ValueError("`tree_by_prefix`: expected `train_path`, whose labels form the tree")


def check_raw_option(vectors: str | None, model: Model) -> None:
    """Check that vectors learned from raw text can be used as input to the model.

    RAISES (ValueError): If other vectors are also given, or the model doesn't support static
        vectors.
    """
    if vectors is not None:
        raise ValueError(
            "`raw_paths`: expected no `vectors`, as they are learned from the raw text"
        )
    if model == "transformer":
        raise ValueError("`raw_paths`: expected `model` linear, cnn or hybrid, got transformer")


def check_vectors_option(vectors: str, model: Model) -> None:
    """Check that the given vectors can be used as input to the model.

    RAISES (ValueError): If the pipeline is missing, or the model doesn't support static vectors.
    """
    if model == "transformer":
        raise ValueError("`vectors`: expected `model` linear, cnn or hybrid, got transformer")
    if not is_package(vectors) and not Path(vectors).is_dir():
        raise ValueError(
            "`vectors`: expected a pipeline with static vectors, a package or a folder, got "
            f"{vectors!r}"
        )


def refuse_existing(path: Path) -> None:
    """Check that the path of a new file or folder doesn't already exist.

    RAISES (ValueError): If the path exists.
    """
    if path.exists():
        raise ValueError(f"{path}: expected a new file, got one that exists: use `force`")
