"""`gaitway warm-up`: the number of instances that training will have, because torch compiles for one number."""

import pytest

from gaitway.cli import inspect_run, main
from gaitway.cli.compose_run import compose_run
from gaitway.core.config import ConfigError


class MadeError(Exception):
    pass


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"device": "cuda", "num_envs": 4096}),
        (["num_envs=8192"], {"device": "cuda", "num_envs": 8192}),
        (["device=cpu"], {"device": "cpu", "num_envs": 64}),
    ],
)
def test_as_many_instances_as_will_train(options, expected, monkeypatch):
    asked = {}

    def make_env(id, **settings):
        asked.update(settings, id=id)
        raise MadeError

    monkeypatch.setattr(inspect_run, "make_env", make_env)
    with pytest.raises(MadeError):
        inspect_run.warm_up(main.parser().parse_args(["warm-up", "pup12/velocity", *options]))
    assert asked == {"id": "pup12/velocity", "simulator": "warp", **expected}


@pytest.mark.parametrize("preset", ["ppo_pup12_velocity_gpu", "ppo_walker_run_gpu", "ppo_humanoid_run_gpu"])
def test_presets_train_with_that_many(preset):
    config, _ = compose_run([f"experiment={preset}", "device=cpu"])
    assert config.env.num_envs == inspect_run.TRAINED


def test_no_other_simulator_is_warmed_up():
    asked = main.parser().parse_args(["warm-up", "pup12/velocity", "device=cpu", "simulator=mujoco"])
    with pytest.raises(ConfigError, match="warm-up compiles what simulator=warp needs; leave simulator out"):
        inspect_run.warm_up(asked)
