"""A migration that is begun again with a new quorum: what the first one left behind is used, or not
carried over.
"""

from tools.mutants.mutant import Core, Mutator
from tools.mutants.reach import NEW_QUORUM

_copy = Mutator("migration", "kraftsim.migration.zookeeper_side")
_claim = Mutator("migration", "kraftsim.migration.zookeeper_side")
_broker = Mutator("migration", "kraftsim.zookeeper.migrating_mode")

CORE = Core(
    mutants=(
        _broker.mutant(
            "keeps-the-first-metadata-log",
            "MigratingMode._delete_log",
            "names = disk.list(METADATA_DIRECTORY)",
            "names: list[str] = []",
            "a broker goes on with its copy of the metadata log of the first quorum",
            scenarios=(NEW_QUORUM,),
        ),
        _claim.mutant(
            "controller-epoch-of-the-log",
            "ZookeeperSide._take",
            "kraft_id, kraft_epoch = claim.znode.kraft_controller_id, "
            "claim.znode.kraft_controller_epoch",
            "kraft_id, kraft_epoch = claim.znode.kraft_controller_id, "
            "claim.znode.kraft_controller_epoch; epoch = kraft_epoch - 1",
            "the controller epoch begins again with the metadata log",
            scenarios=(NEW_QUORUM,),
        ),
        _copy.mutant(
            "ids-begin-at-0-again",
            "ZookeeperCopy.next_producer_id",
            "return block.next_producer_id",
            "return 0",
            "the second metadata log allocates the first block again",
            scenarios=(NEW_QUORUM,),
        ),
    )
)
