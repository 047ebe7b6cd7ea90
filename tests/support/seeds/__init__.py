"""Bugs to put into the good scripts of tests/support/doctor, and changes that are no bugs.

seed                 one of them: a script, its edits, the rule that has to find it
losses, ranks, data  bugs, by what they are about
harmless             changes that no rule may find
"""

from tests.support.seeds.data import DATA_SCHEDULES_AND_WRAPPING
from tests.support.seeds.harmless import HARMLESS
from tests.support.seeds.losses import LOSSES_AND_DEVICES
from tests.support.seeds.ranks import RANKS
from tests.support.seeds.seed import SCRIPTS

__all__ = ["HARMLESS", "SCRIPTS", "SEEDS"]

SEEDS = [*LOSSES_AND_DEVICES, *RANKS, *DATA_SCHEDULES_AND_WRAPPING]
