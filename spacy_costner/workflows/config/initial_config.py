"""Write a commented config for `spacy train`, as `spacy init config` does.

The template of the config is templates/init.cfg.jinja, and this module chooses the values in it.
Arguments say what the config is for: its aim (what should be best), and what mistakes cost. The
rest follows from these and from the training corpus, which is measured once. First `init` collects
all choices in a `Plan`; then `make_settings` makes the blocks of the config.

One component can't predict spans that overlap. If spans may overlap, labels are divided into
groups, and each group gets a component.
"""

from dataclasses import replace
from pathlib import Path

from spacy.util import get_lang_class

from ...readers import DEFAULTS, KeptDocs, ReadOptions
from ..vectors import DIR_VECTORS, learn_beside
from .aims import parse_aim
from .config_template import make_settings, render_config
from .corpus_statistics import measure_corpus
from .cost_blocks import choose_costs, given_costs, write_tree
from .decoding_blocks import choose_decoding
from .init_options import Decoding, Model, check_raw_option, check_vectors_option, refuse_existing
from .label_groups import choose_groups
from .loss_blocks import build_loss, choose_losses, parse_losses
from .plan import Plan, check_choices


def init(
    output_path: Path = Path("config.cfg"),
    *,
    model: Model = "linear",
    lang: str = "en",
    train_path: Path | None = None,
    dev_path: Path | None = None,
    aim: str | None = None,
    miss: float | None = None,
    false_alarm: float | None = None,
    wrong_label: float | None = None,
    wrong_boundary: float | None = None,
    tree_path: Path | None = None,
    tree_by_prefix: str | None = None,
    cost: str | None = None,
    loss: str | None = None,
    decoding: Decoding | None = None,
    inner_nodes: bool = False,
    spans_key: str | None = None,
    groups_path: Path | None = None,
    transformer: str | None = None,
    vectors: str | None = None,
    raw_paths: list[Path] | None = None,
    reading: ReadOptions = DEFAULTS,
    kept: KeptDocs | None = None,
    force: bool = False,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config for `spacy train`. docs/init.md says what is chosen where an argument is None.
    Costs are by token. The config itself is not written to a file; only the label tree of
    `tree_by_prefix` and the vectors of `raw_paths` are.

    output_path (Path): Where the config will be, for the commands at its head.
    model (Literal["linear", "cnn", "hybrid", "transformer"]): Kind of model.
    lang (str): Code of the language.
    train_path (Path | None): Training corpus, to choose sizes; any format.
    dev_path (Path | None): Development corpus; any format.
    aim (str | None): f (best F), cost (lowest cost), guarantee (a promised miss rate),
        precision=0.9 (best recall with at least this precision) or recall=0.9.
    miss (float | None): Cost of a missed entity, for each token.
    false_alarm (float | None): Cost of a false alarm, for each token.
    wrong_label (float | None): Cost of a wrong label, for each token.
    wrong_boundary (float | None): Cost of a wrong boundary, where the label is right, for each
        token.
    tree_path (Path | None): Label tree, a JSON or YAML file: near labels cost less.
    tree_by_prefix (str | None): Write the label tree, by default to tree.json beside the config:
        each label is below its part before this separator, such as _.
    cost (str | None): hamming, zero-one or a CSV file: the cost of each pair of labels.
    loss (str | None): Loss, or several, separated by commas.
    decoding (Literal["viterbi", "threshold", "min-cost"] | None): How entities are chosen.
    inner_nodes (bool): Also predict inner nodes of the tree.
    spans_key (str | None): Entities may overlap: the key of doc.spans.
    groups_path (Path | None): JSON file, {component: [labels]}: labels of different components may
        overlap.
    transformer (str | None): Name or folder of the transformer.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from --train,
        to the folder vectors beside the config. See `costner vectors`.
    reading (ReadOptions): How to read the corpora, also in training.
    kept (KeptDocs | None): The docs of the training corpus are kept in it, and what was reported of
        them. None: they aren't kept, and problems become warnings.
    force (bool): Overwrite the file of the tree and the folder of the vectors.
    command (str): The command that makes the config, for its head.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read, lacks a label of the corpus, or is there already.
    RAISES (ImportError): If spaCy has no such language, or vectors can't be learned without SciPy.
    """
    # Check what can be checked before the corpus is read.
    get_lang_class(lang)  # raises an error if there is no such language
    if transformer is not None and model != "transformer":
        raise ValueError(f"`transformer`: expected `model` transformer, got `model` {model}")
    if raw_paths:
        check_raw_option(vectors, model)
        if not force:
            refuse_existing(output_path.with_name(DIR_VECTORS))
    elif vectors is not None:
        check_vectors_option(vectors, model)
    if aim is not None:
        # This raises an error if the text is neither one of these two names, nor an aim of `tune`.
        parse_aim(aim, "cost", "guarantee", option="`aim`")

    # Read the corpus and the files.
    if spans_key is None and groups_path is not None:
        spans_key = "sc"  # the default of spaCy's SpanCategorizer
    if tree_path is None and tree_by_prefix is not None:
        tree_path = output_path.with_name("tree.json")
    corpus = measure_corpus(train_path, lang, spans_key, reading, kept)
    groups: dict[str, list[str]] = {}
    if spans_key is not None:
        groups = choose_groups(corpus, groups_path)
    mistake_costs = given_costs(
        miss=miss,
        false_alarm=false_alarm,
        wrong_label=wrong_label,
        wrong_boundary=wrong_boundary,
    )
    costs = choose_costs(tree_path, cost, mistake_costs)

    # Choose what the arguments leave open.
    if aim is None:
        aim = "cost" if costs.blocks or decoding == "min-cost" else "f"
    if spans_key is not None and costs.block(aim) is not None:
        raise ValueError("`spans_key`: expected no costs with it, as their scores are of doc.ents")
    if loss is None:
        losses = choose_losses(model, aim, costs.blocks, is_small=corpus.is_small)
    else:
        losses = parse_losses(loss)
    if decoding is None:
        last_loss = build_loss(losses[-1])  # The trained model has the scores of this loss.
        decoding = choose_decoding(model, aim, last_loss, inner_nodes=inner_nodes)
    check_choices(aim, losses, decoding, costs, inner_nodes=inner_nodes)

    # Write the files that the config refers to.
    if tree_by_prefix is not None:
        if train_path is None:
            raise ValueError(
                "`tree_by_prefix`: expected `train_path`, whose labels are in the tree"
            )
        assert tree_path is not None  # it was chosen above
        if not force:
            refuse_existing(tree_path)
        write_tree(tree_path, sorted(corpus.label_counts), tree_by_prefix)
    if raw_paths:
        # Learn vectors, and save them in a folder beside the config.
        learned = learn_beside(raw_paths, train_path, output_path.parent, lang, reading)
        vectors = str(learned.path)
    plan = Plan(
        config_path=output_path,
        command=command,
        train_path=train_path,
        dev_path=dev_path,
        corpus=corpus,
        reading=replace(reading, spans_key=None).settings(),  # the template has `spans_key`
        lang=lang,
        model=model,
        transformer=transformer,
        vectors=vectors,
        groups=groups,
        spans_key=spans_key,
        aim=aim,
        costs=costs,
        losses=losses,
        has_loss_option=loss is not None,
        decoding=decoding,
        inner_nodes=inner_nodes,
    )
    return render_config(plan, make_settings(plan))
