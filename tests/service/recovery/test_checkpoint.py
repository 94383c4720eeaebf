"""Where Spark can go on from its logs, beside a catalog that knows what is visible."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.values.plan import Plan
from operators.bucket.bucket import Bucket
from operators.bucket.state.manifest import encode_manifest, encode_plan
from operators.bucket.state.store_segments import SegmentIds
from operators.segments.files.segment_files import SegmentFiles
from operators.storage.folder import directory_here
from service.checkpoint.spark_log import SparkLog
from service.errors import (
    CheckpointAhead,
    CheckpointDamaged,
    CheckpointLost,
    CorruptResults,
    NotRepairable,
    OtherLife,
)
from service.maintenance.diagnosis.find_repair import find_repair
from service.recovery.checkpoint import check_checkpoint, check_state, examine_checkpoint
from service.recovery.moving.moved_state import ReadManifests
from tests.service.recovery.lives import CHECKPOINT, Life, a_life, input_end
from tests.service.spark_logs import write_begun, write_done, write_state

UUID = "0c9bbd4c-9be3-4ef2-8d4b-4f1f0b0f2a11"


def logs(life: Life) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return life.log.begun(), life.log.done()


def lose(life: Life, *entries: str) -> None:
    for entry in entries:
        life.entry(entry).unlink()


def begin_batch_5(life: Life) -> None:
    life.begin(5)


@pytest.mark.parametrize(
    ("crash", "begun", "done"),
    [
        (lambda life: None, 5, 5),
        (begin_batch_5, 6, 5),
        (lambda life: lose(life, "commits/4"), 5, 4),
        # The end of Spark's log is lost: the source gives what the catalog has of the batch.
        (lambda life: lose(life, "commits/4", "offsets/4"), 4, 4),
        (lambda life: lose(life, "offsets/4"), 4, 4),
        (lambda life: lose(life, "commits/4", "commits/3"), 4, 3),
        (lambda life: lose(life, "commits/4", "offsets/4", "commits/3", "offsets/3"), 3, 3),
        (lambda life: lose(life, "offsets/3"), 3, 3),
        # Torn entries count as not written.
        (lambda life: life.entry("commits/4").write_text(""), 5, 4),
        (lambda life: life.entry("offsets/4").write_text("v2\n{"), 4, 4),
        (lambda life: life.entry("offsets/5").write_text(""), 5, 5),
    ],
)
@pytest.mark.parametrize("ahead", [0, 1])
def test_what_a_crash_leaves_is_gone_on_with(
    tmp_path: Path, crash: Callable[[Life], object], begun: int, done: int, ahead: int
) -> None:
    with a_life(tmp_path, batches=5, ahead=ahead, state=True) as life:
        crash(life)
        for _ in range(2):
            check_checkpoint(life.store, life.data_dir)
            assert logs(life) == (tuple(range(-ahead, begun)), tuple(range(-ahead, done)))
        assert find_repair(life.store, life.data_dir, life.data_dir.events_url(None)) is None


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("batches", [1, 5])
def test_a_batch_of_which_power_may_have_taken_something_is_repeated(
    tmp_path: Path, batches: int, ahead: int
) -> None:
    with a_life(tmp_path, batches=batches, ahead=ahead) as life:
        life.begin(batches)
        check_checkpoint(life.store, life.data_dir, unsynced=True)
        assert logs(life) == (tuple(range(-ahead, batches)), tuple(range(-ahead, batches - 1)))


@pytest.mark.parametrize("ahead", [0, 1])
def test_power_that_failed_before_anything_was_visible_leaves_nothing(tmp_path: Path, ahead: int) -> None:
    with a_life(tmp_path, ahead=ahead) as life:
        life.begin(0)
        check_checkpoint(life.store, life.data_dir)
        assert logs(life)[0] == tuple(range(-ahead, 1))
        check_checkpoint(life.store, life.data_dir, unsynced=True)
        assert logs(life) == ((), ())


def test_a_snapshot_that_was_not_synced_is_not_in_the_way(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=5) as life:
        state = life.data_dir.checkpoint / "state" / "0" / "0"
        state.mkdir(parents=True)
        for name in ("1.zip", "3.zip", "5.zip", "3.changelog", "4.changelog"):
            (state / name).write_bytes(b"")
        check_checkpoint(life.store, life.data_dir)
        assert len(list(state.iterdir())) == 5
        last = life.store.batches.last_manifest()
        assert last is not None
        synced_ns = last.committed_at_us * 1000
        os.utime(state / "1.zip", ns=(0, 0))
        for name in ("3.zip", "5.zip"):
            os.utime(state / name, ns=(synced_ns, synced_ns))
        check_checkpoint(life.store, life.data_dir, unsynced=True)
        # Of batch 4 on, the state begins with version 4: version 3 is reached by its changes.
        assert sorted(path.name for path in state.iterdir()) == ["1.zip", "3.changelog", "4.changelog"]


def test_a_death_while_entries_are_removed_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SparkLog(tmp_path)
    for batch in range(3):
        write_begun(log, batch, {"batch": batch + 1})
    removed = Path.unlink

    def dies(path: Path, missing_ok: bool = False) -> None:
        removed(path, missing_ok)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dies)
        with pytest.raises(KeyboardInterrupt):
            log.cut(-1, [])
    assert log.begun() == (0, 1)


def test_the_leftover_of_a_first_offset_is_cleared(tmp_path: Path) -> None:
    with a_life(tmp_path) as life:
        life.log.offsets.mkdir()
        life.log.commits.mkdir()
        leftovers = [life.log.offsets / f".0.{UUID}.tmp", life.log.commits / f".0.{UUID}.tmp"]
        for path in leftovers:
            path.write_text("v2")
        check_checkpoint(life.store, life.data_dir)
        assert not any(path.exists() for path in leftovers)


def test_leftovers_beside_entries_go_and_other_files_stay(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=2) as life:
        leftover, others = life.log.offsets / f".2.{UUID}.tmp", [".2.tmp", "notes.txt", ".hidden"]
        leftover.touch()
        for name in others:
            (life.log.offsets / name).touch()
        check_checkpoint(life.store, life.data_dir)
        assert not leftover.exists()
        assert all((life.log.offsets / name).exists() for name in others)
        assert logs(life) == ((0, 1), (0, 1))


def lose_all(life: Life) -> None:
    shutil.rmtree(life.data_dir.checkpoint)
    life.data_dir.create()


def lose_logs(life: Life) -> None:
    shutil.rmtree(life.log.offsets)
    shutil.rmtree(life.log.commits)


def restore_an_older_one(life: Life) -> None:
    for batch in (2, 3, 4):
        lose(life, f"offsets/{batch}", f"commits/{batch}")


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("loss", [lose_all, lose_logs, restore_an_older_one])
def test_a_checkpoint_that_lost_too_much_is_refused_and_can_be_built_anew(
    tmp_path: Path, loss: Callable[[Life], None], ahead: int
) -> None:
    with a_life(tmp_path, batches=5, ahead=ahead, state=True) as life:
        loss(life)
        for _ in range(2):
            with pytest.raises(CheckpointLost, match="the catalog has batches up to 4") as refused:
                check_checkpoint(life.store, life.data_dir)
            assert f'"sluice repair {tmp_path}"' in str(refused.value)
        repair = find_repair(life.store, life.data_dir, life.data_dir.events_url(None))
        assert repair is not None
        assert "repeats batches 0 to 4" in repair.does
        repair.apply()
        assert logs(life) == ((), ())
        assert len(list(tmp_path.glob("checkpoint.before-*"))) == (life.data_dir.checkpoint.exists())
        # Spark repeats from the first batch on, however often it dies on the way.
        for batch in range(5):
            check_checkpoint(life.store, life.data_dir)
            write_begun(life.log, batch, input_end(batch))
            check_checkpoint(life.store, life.data_dir)
            write_done(life.log, batch)
        write_state(life.data_dir.checkpoint, 5)
        check_checkpoint(life.store, life.data_dir)
        assert find_repair(life.store, life.data_dir, life.data_dir.events_url(None)) is None
        # Built again, it is a checkpoint like any other.
        lose_logs(life)
        with pytest.raises(CheckpointLost):
            check_checkpoint(life.store, life.data_dir)


def test_a_merged_file_that_is_damaged_cannot_be_made_anew(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=30, state=True) as life:
        life.merge(3)
        first = min(life.data_dir.results.iterdir())
        whole = first.read_bytes()
        first.write_bytes(b"")
        check_checkpoint(life.store, life.data_dir)
        with pytest.raises(NotRepairable, match=first.name) as refused:
            find_repair(life.store, life.data_dir, life.data_dir.events_url(None))
        assert "The file has rows of many batches" in str(refused.value)
        # What can be mended is, whatever else is wrong.
        lose_all(life)
        assert find_repair(life.store, life.data_dir, life.data_dir.events_url(None)) is not None
        first.write_bytes(whole)


def test_a_state_that_was_begun_by_an_older_version_cannot_be_built_anew(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=5, state=True) as life:
        with life.store._database.write() as connection:
            connection.exec_driver_sql(
                "UPDATE batches SET document = json_remove(document, '$.input_end') WHERE batch = 1"
            )
        lose_all(life)
        with pytest.raises(NotRepairable, match="the catalog has batches up to 4") as refused:
            find_repair(life.store, life.data_dir, life.data_dir.events_url(None))
        assert "does not know the input of batch 1" in str(refused.value)


def test_a_catalog_that_is_older_than_the_checkpoint_is_refused_and_the_rest_made_again(
    tmp_path: Path,
) -> None:
    with a_life(tmp_path, batches=5, state=True) as life:
        for batch in (5, 6):
            write_begun(life.log, batch, input_end(batch))
            write_done(life.log, batch)
        write_begun(life.log, 7, input_end(7))
        with pytest.raises(CheckpointAhead, match="the checkpoint has batch 6, the catalog only up to 4"):
            check_checkpoint(life.store, life.data_dir)
        assert logs(life) == (tuple(range(8)), tuple(range(7)))
        repair = find_repair(life.store, life.data_dir, life.data_dir.events_url(None))
        assert repair is not None
        assert "Forget batches 5 to 6" in repair.does
        repair.apply()
        check_checkpoint(life.store, life.data_dir)
        assert logs(life) == (tuple(range(5)), tuple(range(5)))


def test_a_checkpoint_with_other_input_is_refused(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3) as life:
        write_begun(life.log, 2, input_end(2) | {"1": 7})
        with pytest.raises(OtherLife, match="disagree about the input of batch 2"):
            check_checkpoint(life.store, life.data_dir)


def damage(life: Life, batch: int) -> Path:
    manifest = life.store.batches.manifest(batch)
    assert manifest is not None
    path = life.data_dir.results / manifest.files[0].path
    path.write_bytes(b"")
    return path


def test_a_damaged_result_file_of_the_last_batch_is_made_again(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=5) as life:
        damage(life, 4)
        assert list(examine_checkpoint(life.store, life.data_dir).repeated) == [4]


def test_a_damaged_result_file_of_a_batch_before_is_refused_and_can_be_made_again(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=5, state=True) as life:
        path = damage(life, 1)
        with pytest.raises(CorruptResults, match=f'result file "{path}" is damaged'):
            check_checkpoint(life.store, life.data_dir)
        repair = find_repair(life.store, life.data_dir, life.data_dir.events_url(None))
        assert repair is not None
        repair.apply()
        check_checkpoint(life.store, life.data_dir)


def test_a_moved_checkpoint_names_its_own_schemas(tmp_path: Path) -> None:
    below = "state/0/_stateSchema/default/0_df55d907"
    was = 'v2\n{"stateInfo":[{"paths":["file:/old/state/here/checkpoint/%s"]}],"variables":"{\\"a\\":1}"}'
    with a_life(tmp_path / 'Ä "new" place', batches=2) as life:
        noted = life.data_dir.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
        noted.parent.mkdir(parents=True)
        noted.write_text(was % below)
        for _ in range(2):
            check_checkpoint(life.store, life.data_dir)
            version, document = noted.read_text().split("\n")
            assert version == "v2"
            assert json.loads(document) == {
                "stateInfo": [{"paths": [f"file:{life.data_dir.checkpoint / below}"]}],
                "variables": '{"a":1}',
            }
        assert [path.name for path in noted.parent.iterdir()] == ["0"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metadata", Path.unlink),
        ("metadata", lambda path: path.write_text("")),
        ("state/0/_metadata/v2/0", Path.unlink),
        ("state/0/_metadata/v2/0", lambda path: path.write_text("v2\n{")),
        ("state/0/_stateSchema/default/0_5c", Path.unlink),
        ("state/0/_stateSchema/default/0_5c", lambda path: path.write_text("")),
        ("state/0/0/6.changelog", Path.unlink),
        ("state/0/0/5.changelog", lambda path: path.write_text("")),
        ("state", shutil.rmtree),
    ],
)
def test_a_file_of_the_state_that_is_gone_is_named_and_the_state_built_anew(
    tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    with a_life(tmp_path, batches=5, ahead=1, state=True) as life:
        checkpoint, partition = life.data_dir.checkpoint, life.data_dir.checkpoint / "state" / "0" / "0"
        for version in (5, 6):
            (partition / f"{version}.zip").rename(partition / f"{version}.changelog")
        check_state(life.store, life.data_dir)
        damage(checkpoint / name)

        with pytest.raises(CheckpointDamaged) as refused:
            check_state(life.store, life.data_dir)
        repair = find_repair(life.store, life.data_dir, life.data_dir.events_url(None))

        assert str(checkpoint / name) in refused.value.primary
        assert f'"sluice repair {tmp_path}"' in (refused.value.hint or "")
        assert repair is not None
        assert repair.found == refused.value.primary
        assert "build the state again" in repair.does
        repair.apply()
        check_checkpoint(life.store, life.data_dir)


def test_damage_inside_of_the_state_is_found_where_it_is_read(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3, ahead=1, state=True) as life:
        plan = Plan(1, "mem-opt", (), ())
        files = SegmentFiles(life.data_dir.segments)
        stored = SegmentIds(CHECKPOINT, 0, 0).plan(plan.version)
        files.write(stored, encode_plan(plan))
        manifest = encode_manifest(Bucket(plan))

        def found(read: ReadManifests) -> str | None:
            repair = find_repair(life.store, life.data_dir, life.data_dir.events_url(None), read)
            assert repair is None or "build the state again" in repair.does
            return None if repair is None else repair.found

        def whole(checkpoint: Path, number: int) -> dict[int, bytes]:
            assert (checkpoint, number) == (life.data_dir.checkpoint, 3)
            return {0: manifest}

        def damaged(checkpoint: Path, number: int) -> dict[int, bytes]:
            raise CheckpointDamaged("Spark's state cannot be read")

        assert found(whole) is None
        assert found(damaged) == "Spark's state cannot be read"
        path = directory_here(life.data_dir.segments) / stored
        for content in (path.read_bytes()[:-1], None):
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            assert found(whole) == f'segment "{stored}" cannot be read as it was written'
