"""Attacks: points inside a ball at which a smoothed classifier errs, and what they say about a certified run."""

from ringfence.attacks.through_noise import ATTACKS as ATTACKS
from ringfence.attacks.through_noise import ORDERS as ORDERS
from ringfence.attacks.through_noise import Ddn as Ddn
from ringfence.attacks.through_noise import Pgd as Pgd
from ringfence.attacks.through_noise import PgdL1 as PgdL1
from ringfence.attacks.through_noise import SmoothedScores as SmoothedScores
from ringfence.attacks.through_noise import gradient_of_loss as gradient_of_loss
from ringfence.attacks.through_noise import into_l2_ball as into_l2_ball
from ringfence.attacks.through_noise import log_mean_softmax as log_mean_softmax
from ringfence.attacks.through_noise import norms as norms
from ringfence.attacks.through_noise import smoothed_loss as smoothed_loss
from ringfence.attacks.through_noise import unit as unit
