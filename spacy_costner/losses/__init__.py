"""The training losses: potentials and gold in, value and gradient out.

One file per family. A loss takes the scores of a batch and gold, and uses the fields of gold that
its formula names: `multiplier` is m, the score per unit of the cost C; w are the weights of tokens.
It returns a value and the gradient of exactly this value, a subgradient at a kink. The value is a
sum over the sequences of the batch (likelihoods in nats, expected costs in units of cost) or, for
`zscore` and `mce_f`, one ratio over the batch. Each loss has a factory, which checks its
parameters. setup.cfg names the factories.
"""

from .fscore import mce_f
from .likelihood import mixed, pointwise, sequential
from .margin import jensen_risk_bound, max_margin, risk, softmax_margin
from .mce import mce
from .perceptron import mira, perceptron
from .schedule import LossSchedule
from .zscore import zscore
