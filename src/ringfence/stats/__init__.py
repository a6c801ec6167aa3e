"""Statistics on counts: NumPy and scipy.special only, never torch."""

from ringfence.stats.binomial import (
    AlphaLedger,
    AnytimeBound,
    ClopperPearson,
    FixedBound,
    SpendingClopperPearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    rank_test,
    rank_test_one_sided,
)
from ringfence.stats.means import (
    MeanBound,
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    histogram_lower,
    histogram_upper,
    hoeffding_lower,
    hoeffding_upper,
    moments,
)
from ringfence.stats.noise_law import FAMILIES, NoiseFamily, NoiseLaw, as_law
from ringfence.stats.sequential import (
    GroupSequentialDesign,
    evalue_certifies,
    group_sequential_design,
    log_evalue,
    look_schedule,
)

__all__ = [
    "FAMILIES",
    "AlphaLedger",
    "AnytimeBound",
    "ClopperPearson",
    "FixedBound",
    "GroupSequentialDesign",
    "MeanBound",
    "NoiseFamily",
    "NoiseLaw",
    "SpendingClopperPearson",
    "as_law",
    "betting_lower",
    "betting_upper",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "empirical_bernstein_lower",
    "empirical_bernstein_upper",
    "evalue_certifies",
    "group_sequential_design",
    "histogram_lower",
    "histogram_upper",
    "hoeffding_lower",
    "hoeffding_upper",
    "log_evalue",
    "look_schedule",
    "moments",
    "rank_test",
    "rank_test_one_sided",
]
