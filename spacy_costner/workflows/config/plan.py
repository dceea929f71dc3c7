"""The plan of a config: all choices, whether set by options or made automatically."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .corpus_statistics import CorpusStatistics
from .cost_blocks import GivenCosts, choose_costs
from .decoding_blocks import choose_decoding
from .init_options import Decoding, InitOptions
from .label_groups import choose_groups
from .loss_blocks import build_loss, choose_losses, parse_losses


@dataclass(frozen=True)
class Plan:
    """All choices for a config. The template refers to the fields of `InitOptions`, `Plan` and
    `TemplateValues` by name. If `InitOptions` and `Plan` have a field of the same name, the plan's
    field is used.

    options (InitOptions): The completed options.
    corpus (CorpusStatistics): The statistics of the training corpus.
    groups (Mapping[str, list[str]]): The labels of each component. Empty if spans can't overlap.
    aim (str): The aim: see `InitOptions`.
    costs (GivenCosts): The costs set by the options.
    losses (Sequence[str]): The short name of the loss, or of each loss of a schedule.
    decoding (Decoding): How entities are chosen.
    """

    options: InitOptions
    corpus: CorpusStatistics
    groups: Mapping[str, list[str]]
    aim: str
    costs: GivenCosts
    losses: Sequence[str]
    decoding: Decoding


def make_plan(options: InitOptions, corpus: CorpusStatistics) -> Plan:
    """Choose all settings that aren't set by the options: see docs/init.md.

    options (InitOptions): The completed options.
    corpus (CorpusStatistics): The statistics of the training corpus.
    RAISES (ValueError): If a loss or cost isn't registered, options can't be combined, or the file
        of groups can't be read or lacks a label of the corpus.
    """
    groups: dict[str, list[str]] = {}
    if options.spans_key is not None:
        groups = choose_groups(corpus, options.groups_path)
    costs = choose_costs(options)
    aim = options.aim
    if aim is None:
        aim = "cost" if costs.blocks or options.decoding == "min-cost" else "f"
    if options.spans_key is not None and costs.block(aim) is not None:
        raise ValueError("`spans_key`: expected no costs, as the cost scorer reads doc.ents")
    if options.loss is None:
        losses = choose_losses(options.model, aim, costs.blocks, is_small=corpus.is_small)
    else:
        losses = parse_losses(options.loss)
    decoding = options.decoding
    if decoding is None:
        last_loss = build_loss(losses[-1])  # the loss that training ends with
        decoding = choose_decoding(options.model, aim, last_loss, inner_nodes=options.inner_nodes)
    plan = Plan(
        options=options,
        corpus=corpus,
        groups=groups,
        aim=aim,
        costs=costs,
        losses=losses,
        decoding=decoding,
    )
    check_plan(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """Check that the choices of a plan are compatible with each other."""
    if plan.decoding == "min-cost" and plan.aim != "cost":
        raise ValueError(
            "`decoding`: expected min-cost with `aim` cost only: `tune` would replace it, and "
            "`guarantee` chooses a set of spans"
        )

    # Some options require scores that are probabilities after training.
    option_of_probabilities = None
    if plan.aim == "guarantee":
        option_of_probabilities = "`aim` guarantee"
    elif plan.decoding != "viterbi":
        option_of_probabilities = f"`decoding` {plan.decoding}"
    last_loss = plan.losses[-1]
    if option_of_probabilities is not None and not build_loss(last_loss).has_probabilities:
        raise ValueError(
            f"`loss`: expected a loss such as Sequential with {option_of_probabilities}, got "
            f"{last_loss}: its scores are not probabilities"
        )

    # Costs are used by the loss or the aim. A label tree is also used by the scorer, with any loss.
    has_tree = "tree" in plan.costs.blocks
    has_cost_in_training = any(build_loss(name).cost for name in plan.losses)
    is_cost_used = has_cost_in_training or plan.aim == "cost" or has_tree
    if plan.costs.blocks and not is_cost_used:
        raise ValueError(
            "`loss`: expected a loss that takes a cost, or `aim` cost, got "
            f"{', '.join(plan.losses)}: nothing would use the costs"
        )

    if plan.options.inner_nodes and (plan.decoding != "min-cost" or not has_tree):
        raise ValueError("`inner_nodes`: expected `tree_path` and `decoding` min-cost")
