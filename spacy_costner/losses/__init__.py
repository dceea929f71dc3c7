"""The training losses. A loss maps potentials and gold to a value and a gradient.

There is one module per family of losses. A loss receives the scores of a batch and its gold, and
uses the fields of gold that occur in its formula. In the formulas, `multiplier` is m, the score per
unit of the cost C, and w are the token weights. A loss returns its value and the exact gradient of
this value, or a subgradient at a kink. The value is a sum over the sequences of the batch
(likelihoods in nats, expected costs in units of cost) or, for `zscore` and `mce_f`, a ratio over
the batch. Each loss has a factory that validates its parameters. The factories are registered in
setup.cfg.
"""

from .fscore import mce_f
from .likelihood import mixed, pointwise, sequential
from .margin import jensen_risk_bound, max_margin, risk, softmax_margin
from .mce import mce
from .perceptron import mira, perceptron
from .schedule import LossSchedule
from .zscore import zscore
