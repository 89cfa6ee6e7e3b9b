"""Every kind of planted defect is found in the log directories of a small cluster, by the rule that
is meant for it and at its place; without one there is no finding.
"""

import shutil
from pathlib import Path

import pytest

from tests.audit.small_cluster import make_log_directories
from tools.audit_corpus.judged import audit, defects_of, found
from tools.audit_corpus.plants.disks import Disks, Unplantable
from tools.audit_corpus.plants.plant import PLANTS, Plant

NEEDS_A_REAL_CLUSTER = ("remote-", "share-", "replica-directory-missing")
"""Tiers, share groups, and a partition whose last change is a minute old: `make audit-corpus`
plants these in directories of Apache Kafka.
"""
HERE = tuple(plant for plant in PLANTS.all() if not plant.name.startswith(NEEDS_A_REAL_CLUSTER))


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_log_directories(tmp_path_factory.mktemp("small"))


def test_sound_directories_have_no_defect_and_nothing_undecided(log_dirs: list[Path]) -> None:
    results = audit(log_dirs, [])
    assert defects_of(results) == ()
    assert sum(each.examined for each in results) > 1000


@pytest.mark.parametrize("plant", HERE, ids=lambda plant: plant.name)
def test_a_planted_defect_is_found_and_named(
    plant: Plant, log_dirs: list[Path], tmp_path: Path
) -> None:
    """By a rule of the plant, at its place. `make audit-corpus` asks all other rules as well."""
    for each in log_dirs:
        shutil.copytree(each, tmp_path / each.name)
    disks = Disks([tmp_path / each.name for each in log_dirs])
    try:
        what = plant.plant(disks)
    except Unplantable as missing:
        pytest.fail(f"the small cluster offers too little: {missing}")
    assert found(plant, "small", what, audit(disks.log_dirs, [], plant.rules)).wrong == ()
