"""Files that are complete or absent, locks, and the names in the folder of a run."""

import re
from pathlib import Path

import pytest

from pdno import UserError
from pdno.work.files import locked, partial_path, previous_path, replacing
from pdno.work.folder import RunFolder


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path, sync) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    with replacing(path, sync) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def _interrupted(path: Path, sync: bool, folder: Path | None = None) -> None:
    """Write half of a file, or of a folder with that file, and raise."""
    with replacing(folder or path, sync, previous=True) as partial:
        assert not partial.exists()
        if folder is not None:
            partial.mkdir()
        (partial if folder is None else partial / path.name).write_text("half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("sync", [False, True])
def test_an_exception_leaves_the_old_file(tmp_path, sync) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path, sync)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_a_block_that_writes_nothing_is_an_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folders_are_complete_or_absent_too(tmp_path) -> None:
    path = tmp_path / "d.zarr"
    (partial_path(path) / "chunk").mkdir(parents=True)  # of a process that was killed
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path / "u", sync=True, folder=path)
    assert list(tmp_path.iterdir()) == []
    with replacing(path, sync=True) as partial:
        (partial / "u" / "c").mkdir(parents=True)
        (partial / "u" / "c" / "0").write_text("values")
    assert (path / "u" / "c" / "0").read_text() == "values"
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.zarr"]


def test_the_previous_file_is_kept_on_demand(tmp_path) -> None:
    path = tmp_path / "a"
    for text in ("1", "2", "3"):
        with replacing(path, previous=True) as partial:
            partial.write_text(text)
    assert (path.read_text(), previous_path(path).read_text()) == ("3", "2")


def test_files_of_the_user_beside_it_are_not_touched(tmp_path) -> None:
    """Such as an interrupted download, or a store that is not complete."""
    download = tmp_path / "d.npz.partial"
    download.write_text("half of it")
    with replacing(tmp_path / "d.npz") as partial:
        partial.write_text("values")
    assert download.read_text() == "half of it"


def test_a_folder_has_one_lock(tmp_path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match="another process is writing"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_files_of_a_run_are_described() -> None:
    """Each property is in the table of the module, and the other way round."""
    run = RunFolder(Path("RUN"))
    properties = [name for name, value in vars(RunFolder).items() if isinstance(value, property)]
    paths = [getattr(run, name).as_posix() for name in properties]
    module = Path(__file__).parents[2] / "pdno" / "work" / "folder.py"
    assert re.findall(r"^    (RUN/\S+)", module.read_text(), flags=re.MULTILINE) == paths
    assert len(set(paths)) == 11
