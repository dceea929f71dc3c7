"""The commands of `python -m spacy costner`: one module a command.

spaCy imports this package through its entry point in the group `spacy_cli`.
"""

import typer
from spacy.cli._util import app

from .annotate import annotate_cli
from .audit import audit_cli
from .calibrate import calibrate_cli
from .check import check_cli
from .clusters import clusters_cli
from .compare import compare_cli
from .convert import convert_cli
from .distill import distill_cli
from .explain import explain_cli
from .fit import fit_cli
from .guarantee import guarantee_cli
from .init import init_cli
from .report import report_cli
from .suggest import suggest_cli
from .tune import tune_cli
from .watch import watch_cli

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of commands that take settings of the config, such as --paths.train."""

costner = typer.Typer(
    name="costner", help="Cost-sensitive named entity recognition.", no_args_is_help=True
)
app.add_typer(costner)

# `--help` lists them in this order.
costner.command("compare", context_settings=OVERRIDES)(compare_cli)
costner.command("fit", context_settings=OVERRIDES)(fit_cli)
costner.command("distill", context_settings=OVERRIDES)(distill_cli)
costner.command("calibrate")(calibrate_cli)
costner.command("tune")(tune_cli)
costner.command("guarantee")(guarantee_cli)
costner.command("check", context_settings=OVERRIDES)(check_cli)
costner.command("annotate")(annotate_cli)
costner.command("watch")(watch_cli)
costner.command("explain")(explain_cli)
costner.command("report")(report_cli)
costner.command("suggest", context_settings=OVERRIDES)(suggest_cli)
costner.command("audit", context_settings=OVERRIDES)(audit_cli)
costner.command("convert")(convert_cli)
costner.command("clusters")(clusters_cli)
costner.command("init")(init_cli)
