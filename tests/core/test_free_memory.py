"""Free memory: of the machine, and within the limits around the process."""

from gaitway.core import free_memory as free_memory_module
from gaitway.core.free_memory import free_memory


def test_what_is_free():
    assert 2**20 < free_memory("cpu") < 2**50
    assert free_memory("meta") is None


def test_the_tightest_limit_around_the_process_counts(tmp_path, monkeypatch):
    groups = {"": ("max", 5_000, 0), "pod": ("9000", 4_000, 500), "pod/job": ("20000", 3_000, 1_000)}
    for name, (limit, used, inactive) in groups.items():
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    own = tmp_path / "own"
    own.write_text("0::/pod/job\n")
    monkeypatch.setattr(free_memory_module, "CGROUPS", tmp_path)
    monkeypatch.setattr(free_memory_module, "OWN_GROUP", own)
    assert free_memory_module._within_group() == 9_000 - 4_000 + 500
    monkeypatch.setattr(free_memory_module, "_of_the_machine", lambda: 100)
    assert free_memory("cpu") == 100
    own.unlink()
    assert free_memory_module._within_group() is None
