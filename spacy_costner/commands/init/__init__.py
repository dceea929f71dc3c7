"""Write a config: `costner init`."""

from .goes_together import DECODINGS, FEW, LOSSES, MODELS, Costs, Plan, make_plan, parse_cost
from .sizes import Size, look, size_of_sentences
from .writing import Corpora, describe_size, next_commands, write_config

__all__ = [
    "DECODINGS",
    "FEW",
    "LOSSES",
    "MODELS",
    "Corpora",
    "Costs",
    "Plan",
    "Size",
    "describe_size",
    "look",
    "make_plan",
    "next_commands",
    "parse_cost",
    "size_of_sentences",
    "write_config",
]
