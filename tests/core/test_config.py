from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from gaitway.core.config import (
    ConfigError,
    UnknownKeyError,
    choose,
    flatten,
    from_config,
    read_config,
    resolve_class,
    to_config,
)


class Mode(Enum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Inner:
    minibatches: int = 4
    clip: float = 0.2

    def __post_init__(self) -> None:
        if self.minibatches < 1:
            raise ValueError(f"minibatches is {self.minibatches}; use 1 for a single full batch")


@dataclass(frozen=True)
class Outer:
    algorithm: Inner = field(default_factory=Inner)
    total_steps: int = 1_000_000
    rate: float = 3e-4
    flag: bool = True
    name: str = "run"
    kind: Literal["gru", "lstm", 1] = "gru"
    mode: Mode = Mode.FAST
    hidden: tuple[int, ...] = (64, 64)
    pair: tuple[int, str] = (1, "a")
    names: list[str] = field(default_factory=list)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    extra: Inner | None = None
    coefficient: float | str | None = None
    parts: tuple[Inner, ...] = ()
    folder: Path = Path("runs")


def test_defaults_come_back_and_the_plain_form_survives_yaml() -> None:
    changed = Outer(
        algorithm=Inner(8, 0.1),
        mode=Mode.SAFE,
        hidden=(3,),
        pair=(2, "b"),
        names=["x"],
        groups={"actor": ("policy", "goal")},
        options={"a": {"b": [1, 2.5, None]}},
        extra=Inner(1, 1.0),
        coefficient="linear",
        parts=(Inner(2), Inner(3)),
        folder=Path("a/b"),
    )
    for config in (Outer(), changed):
        assert from_config(Outer, to_config(config)) == config
        assert from_config(Outer, yaml.safe_load(yaml.safe_dump(to_config(config)))) == config
    assert from_config(Outer, {}) == Outer()
    assert type(from_config(Outer, to_config(changed)).hidden) is tuple
    assert type(from_config(Outer, to_config(changed)).names) is list


def test_numbers_as_yaml_writes_them() -> None:
    config = from_config(Outer, {"total_steps": 1e6, "rate": 1, "algorithm": {"minibatches": 2.0}})
    assert (config.total_steps, type(config.total_steps)) == (1_000_000, int)
    assert (config.rate, type(config.rate)) == (1.0, float)
    assert type(config.algorithm.minibatches) is int
    assert math.isinf(from_config(Outer, {"rate": math.inf}).rate)
    assert from_config(Outer, {"coefficient": 2}).coefficient == 2.0


@pytest.mark.parametrize(
    ("data", "key", "words"),
    [
        ({"flag": 1}, "flag", ["true or false", "1"]),
        ({"flag": "yes"}, "flag", ["the text 'yes'"]),
        ({"total_steps": True}, "total_steps", ["True", "an integer"]),
        ({"total_steps": 1.5}, "total_steps", ["1.5", "an integer"]),
        ({"total_steps": math.inf}, "total_steps", ["an integer"]),
        ({"rate": "1e-4"}, "rate", ["the text '1e-4'", "a number"]),
        ({"rate": None}, "rate", ["null"]),
        ({"rate": True}, "rate", ["a number"]),
        ({"name": 3}, "name", ["text"]),
        ({"kind": "gruu"}, "kind", ["did you mean 'gru'", "'lstm'", "1"]),
        ({"kind": True}, "kind", ["the choices"]),
        ({"mode": "FATS"}, "mode", ["did you mean 'FAST'", "SAFE"]),
        ({"hidden": 64}, "hidden", ["a list", "64"]),
        ({"hidden": "64"}, "hidden", ["a list"]),
        ({"hidden": [64, "x"]}, "hidden[1]", ["an integer"]),
        ({"pair": [1]}, "pair", ["1 values", "2 values"]),
        ({"groups": {"actor": ["a", 1]}}, "groups.actor[1]", ["text"]),
        ({"groups": {1: ["a"]}}, "a key of groups", ["text"]),
        ({"groups": []}, "groups", ["a mapping"]),
        ({"algorithm": 3}, "algorithm", ["a mapping of Inner"]),
        ({"algorithm": {"clip": "x"}}, "algorithm.clip", ["a number"]),
        ({"extra": {"clip": "x"}}, "extra.clip", ["a number"]),
        ({"extra": 3}, "extra", ["a mapping of Inner"]),
        ({"coefficient": [1]}, "coefficient", ["a number or text"]),
        ({"parts": [{"clip": 1}, {"clip": "x"}]}, "parts[1].clip", ["a number"]),
    ],
)
def test_wrong_types_name_the_key_what_was_found_and_what_is_expected(data: Any, key: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        from_config(Outer, data)
    assert str(caught.value).startswith(f"{key} ")
    assert caught.value.key == key
    for word in words:
        assert word in str(caught.value)


def test_unknown_keys_name_the_nearest_and_list_the_known() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        from_config(Outer, {"algorithm": {"minibatchs": 8}}, "train")
    assert caught.value.key == "train.algorithm.minibatchs"
    assert str(caught.value) == (
        "there is no key 'train.algorithm.minibatchs' (did you mean 'train.algorithm.minibatches'?); "
        "the known keys of train.algorithm are clip, minibatches"
    )
    with pytest.raises(UnknownKeyError, match=r"no key 'extra\.zzz'; the known keys of extra are clip, minibatches"):
        from_config(Outer, {"extra": {"zzz": 8}})


def test_checks_of_the_dataclass_get_the_path_in_front() -> None:
    with pytest.raises(ConfigError, match=r"^algorithm: minibatches is 0; use 1 for a single full batch$"):
        from_config(Outer, {"algorithm": {"minibatches": 0}})


def test_missing_values_and_things_that_are_no_configuration() -> None:
    made = dataclasses.make_dataclass("Made", [("size", int)], frozen=True)
    with pytest.raises(ConfigError, match="size is missing and has no default; set it to an integer"):
        from_config(made, {})
    with pytest.raises(ConfigError, match="the configuration is the list"):
        from_config(Outer, [1])
    with pytest.raises(TypeError, match="cannot hold"):
        to_config({"a": object()})


def test_flatten_keeps_lists_and_empty_mappings() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [1, {"e": 2}]}}, "f": {}}) == {"a.b": 1, "a.c.d": [1, {"e": 2}], "f": {}}


def test_resolve_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_class("gaitway.core.config:ConfigError") is ConfigError
    (tmp_path / "own_module.py").write_text("class Robot:\n    class Leg: pass\n")
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve_class("own_module:Robot.Leg").__name__ == "Leg"
    sys.modules.pop("own_module")
    for malformed in ("", "own_module", "own_module:", ":Robot", "own module:Robot", "own_module:Robot()", 3):
        with pytest.raises(ConfigError, match=r"write 'package\.module:ClassName'"):
            resolve_class(malformed)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"env.id: there is no module 'absent' for 'absent.part:Robot'"):
        resolve_class("absent.part:Robot", "env.id")
    with pytest.raises(ConfigError, match=r"has no 'Robt' \(did you mean 'Robot'\?\)"):
        resolve_class("own_module:Robt")
    with pytest.raises(ConfigError, match=r"needs the module .not_installed_anywhere., which is not installed"):
        resolve_class("needs_more:Robot")


def test_choose_names_the_nearest() -> None:
    assert choose({"ppo": 1, "sac": 2}, "sac", "algorithm.name") == 2
    with pytest.raises(
        ConfigError, match=r"algorithm.name is 'poo' \(did you mean 'ppo'\?\); the choices are ppo, sac"
    ):
        choose({"ppo": 1, "sac": 2}, "poo", "algorithm.name")


def test_read_config_refuses_what_is_not_a_plain_mapping(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text, words in [("[1]", "a mapping of keys"), ("a: [", "is not YAML"), ("!!python/name:os.system", "not YAML")]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_config(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "none.yaml")
