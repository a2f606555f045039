"""What is known before a run: returns of zero and random actions, room, duration; knowing it changes nothing."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.cli import look_ahead as ahead_module
from gaitway.cli.main import main
from gaitway.core.config import ConfigError
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.runners import preflight as preflight_module
from gaitway.runners.baselines import Baselines, OutOfTimeError, Score, ZeroPolicy, baseline_instances, play_baselines
from gaitway.runners.capacity import Need, check_together, stored_bytes
from gaitway.runners.cast import Cast
from gaitway.runners.evaluate import EvaluationConfig, run_episodes
from gaitway.runners.judge import Judge
from gaitway.runners.runner_config import RunnerConfig, StopConfig
from gaitway.runners.suspicions import unbeaten, warnings_of
from gaitway.runners.upkeep import Upkeep

SPEC = EnvSpec(
    "task",
    (ObservationGroup("policy", (Component("a"), Component("b", 2)), (3,)),),
    ActionSpec("continuous", ("push",), (-1.0,), (1.0,)),
    0.0,
    10,
    metrics=("reward_alive", "reward_run"),
)
PPO = ["env.id=toy/cue", "env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2", "total_steps=768",
       "evaluation.interval=128", "evaluation.episodes=16", "--quiet"]  # fmt: skip
SAC = ["env.id=toy/cue", "env.num_envs=2", "algorithm=sac", "algorithm.learning_starts=64", "algorithm.batch_size=16",
       "algorithm.iteration_steps=64", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]", "total_steps=192",
       "evaluation.episodes=2", "--quiet"]  # fmt: skip


def table(**columns):
    """Two episodes of zero, then two of random actions."""
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()}


def found(unmoved=(), **columns):
    columns = {"return": [1.0, 1.0, 1.0, 1.0], "length": [10.0, 10.0, 10.0, 10.0]} | columns
    return Baselines(SPEC, table(**columns), 2, list(unmoved))


def test_a_score_has_two_standard_errors():
    # mean 3, deviations -1 and 1: std 1, standard error 1 / sqrt(2)
    score = Score.of(torch.tensor([2.0, 4.0]))
    assert score.to_dict() == pytest.approx({"mean": 3.0, "std": 1.0, "noise": 2**0.5, "episodes": 2})


def test_zero_and_random_actions_meet_the_evaluation_seeds():
    with make_env("toy/cue", num_envs=8, purpose="evaluation") as env:
        assert baseline_instances(env.spec, 4) == 8
        played = play_baselines(env, 4, 100, time.perf_counter() + 60)
    with make_env("toy/cue", num_envs=4, purpose="evaluation") as env:
        alone = run_episodes(env, ZeroPolicy(env.spec.action), 4)
    assert torch.equal(played.table["return"][:4], alone["return"])
    assert played.scores()["zero"].mean == -1.0, "(0 - c)^2 with c = +-1"
    assert played.scores()["random"].mean < -1.0
    assert played.unmoved == []


def test_what_never_moves_is_named():
    with make_env("toy/constant", num_envs=4, purpose="evaluation") as env:
        played = play_baselines(env, 2, 100, time.perf_counter() + 60)
        assert played.unmoved == ["policy.one"]
        with pytest.raises(OutOfTimeError):
            play_baselines(env, 2, 100, time.perf_counter() - 1)
    said = warnings_of(played, RunnerConfig())
    assert said == ["observed and never moving, with zero and with random actions: policy.one"]


class TestSentences:
    def test_nothing_suspicious(self):
        parts = {"reward_alive": [1.0, 2.0, 1.5, 1.0], "reward_run": [1.0, 0.5, 0.0, 0.2]}
        assert warnings_of(found(**parts), RunnerConfig()) == []

    def test_doing_nothing_scores_best(self):
        config = RunnerConfig(evaluation=EvaluationConfig(metric="return"))
        (said,) = warnings_of(found(**{"return": [5.0, 5.0, 1.0, 1.2]}), config)
        assert said.startswith("doing nothing scores best so far, with a return of 5 ± 0 against 1.1 ± 0.14 of random")
        # 4 +- 1 and 3 +- 0.8 overlap within two standard errors
        assert warnings_of(found(**{"return": [5.0, 3.0, 2.2, 3.8]}), config) == []

    def test_a_threshold_that_anything_reaches(self):
        config = RunnerConfig(stop=StopConfig(threshold=2.0))
        (said,) = warnings_of(found(**{"return": [1.0, 1.0, 1.0, 2.0]}), config)
        # random: 1.5 +- 2 * 0.5 / sqrt(2) = 0.71
        assert said.startswith(
            "stop.threshold is 2, and random actions reach a return of 1.5 ± 0.71: training would end"
        )
        assert warnings_of(found(**{"return": [1.0, 1.0, 1.0, 1.2]}), config) == []

    def test_parts_of_the_reward(self):
        constant = {"reward_alive": [1.0, 1.0, 1.0, 1.0], "reward_run": [1.0, 0.5, 0.0, 0.2]}
        assert warnings_of(found(**constant), RunnerConfig()) == [
            "reward_alive never varies: it is 1 a step, whatever is done"
        ]
        # mean sizes 9.5 and 0.5, both times ten steps: 95 %
        large = {"reward_alive": [9.0, 10.0, 9.0, 10.0], "reward_run": [0.5, -0.5, 0.4, 0.6]}
        (said,) = warnings_of(found(**large), RunnerConfig())
        assert said.startswith("reward_alive makes 95% of the reward")

    def test_parts_of_the_reward_that_never_vary_share_a_sentence(self):
        still = {"reward_alive": [0.0, 0.0, 0.0, 0.0], "reward_run": [0.0, 0.0, 0.0, 0.0]}
        said = warnings_of(found(**still), RunnerConfig())
        assert said == ["reward_alive, reward_run never vary: they are 0 a step, whatever is done"]

    def test_terms_of_a_legged_task_are_parts_of_its_reward(self):
        names = ("pose_episode", "torques_episode", "seconds_episode")
        spec = replace(SPEC, metrics=names, facts={"legged": {"rewards": ["pose", "torques"]}})
        columns = {"pose_episode": [90.0, 80.0, 70.0, 90.0], "torques_episode": [-1.0, -2.0, -1.0, -1.0]}
        columns |= {"return": [1.0] * 4, "length": [10.0] * 4, "seconds_episode": [500.0] * 4}
        said = warnings_of(Baselines(spec, table(**columns), 2, []), RunnerConfig())
        assert said == ["pose makes 99% of the reward, which hides the other parts from a learner"]

    def test_not_beaten(self):
        bar = {"mean": 5.0, "std": 1.0, "noise": 0.5, "episodes": 16}
        stored = {"metric": "return", "scores": {"zero": bar, "random": bar | {"mean": 1.0}}}
        assert unbeaten(stored, {"return": 5.6}, 100) is None
        assert "zero actions are not beaten: at step 100 the best return is 5.4 ± 0, theirs 5 ± 0.5" in str(
            unbeaten(stored, {"return": 5.4}, 100)
        )
        assert unbeaten(stored, {"return": 5.8, "return_std": 0.4}, 100) is None, "5.8 - 2 * 0.4 / 4 > 5.5"
        assert unbeaten(stored, {"return": 5.8, "return_std": 0.8}, 100) is not None
        assert unbeaten({}, {"return": 1.0}, 100) is None


class TestCosts:
    """The twins of `TestSentences` for a metric of which less is better."""

    CONFIG = RunnerConfig(evaluation=EvaluationConfig(metric="fell"))

    def test_doing_nothing_scores_best_where_it_falls_less(self):
        (said,) = warnings_of(found(fell=[0.0, 0.0, 1.0, 1.0]), self.CONFIG)
        assert said.startswith("doing nothing scores best so far, with a fell of 0 ± 0 against 1 ± 0 of random")
        assert warnings_of(found(fell=[1.0, 1.0, 0.0, 0.0]), self.CONFIG) == []

    def test_a_threshold_is_reached_from_above(self):
        # random: 0.5 +- 2 * 0.5 / sqrt(2) = 0.71, down to -0.21; zero: 1
        columns = {"fell": [1.0, 1.0, 0.0, 1.0]}
        (said,) = warnings_of(found(**columns), replace(self.CONFIG, stop=StopConfig(threshold=-0.2)))
        assert said.startswith("stop.threshold is -0.2, and random actions reach a fell of 0.5 ± 0.71: training would")
        assert said.endswith("use a lower threshold")
        assert warnings_of(found(**columns), replace(self.CONFIG, stop=StopConfig(threshold=-0.3))) == []

    def test_not_beaten(self):
        bar = {"mean": 0.25, "std": 0.1, "noise": 0.05, "episodes": 16}
        stored = {"metric": "fell", "scores": {"zero": bar | {"mean": 1.0}, "random": bar}}
        assert unbeaten(stored, {"fell": 0.19}, 100, is_cost=True) is None, "0.19 < 0.25 - 0.05"
        assert "random actions are not beaten: at step 100 the best fell is 0.21 ± 0, theirs 0.25 ± 0.05" in str(
            unbeaten(stored, {"fell": 0.21}, 100, is_cost=True)
        )
        assert unbeaten({"metric": None, "scores": {}}, {}, 100) is None

    def test_a_run_compares_by_the_costs_of_its_environment(self, caplog):
        made = RunnerConfig(total_steps=16, evaluation=EvaluationConfig(metric="fell", episodes=1, interval=0))
        bar = {"mean": 1.0, "std": 0.0, "noise": 0.0, "episodes": 1}
        folder = SimpleNamespace(read_preflight=lambda: {"metric": "fell", "scores": {"zero": bar}})
        with make_env("toy/cue", 1) as env:
            judge = Judge(made, Cast(ActorCritic(env.spec)), env, None)
        upkeep = SimpleNamespace(folder=folder, judge=judge)
        judge.best = {"fell": 0.0}
        Upkeep._warn_if_unbeaten(upkeep, 8)
        assert "not beaten" not in caplog.text
        judge.best = {"fell": 1.0}
        Upkeep._warn_if_unbeaten(upkeep, 8)
        assert "zero actions are not beaten" in caplog.text


def test_what_does_not_fit_together_is_refused_with_its_key():
    needs = [Need("the replay", 800, "algorithm.replay_size"), Need("the rollout", 150, "env.num_envs")]
    assert check_together(needs, 1100, "on cpu") == 950
    with pytest.raises(ValueError, match=r"takes 950 bytes on cpu, where 1.0 kB .* replay with 800 bytes: lower algo"):
        check_together(needs, 1000, "on cpu")
    assert stored_bytes({"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.int64), 7]}) == 12 + 16


def test_disks(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ahead_module, "_free_disk", lambda place: 1000)
    assert main(["train", *PPO, f"run_dir={tmp_path / 'run'}"]) == 1
    assert "two checkpoints take" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(ahead_module, "_free_disk", lambda place: 300_000)
    warnings: list[str] = []
    config, algorithm = _made(["env.id=toy/cue", "checkpoints.keep=50", "checkpoints.interval=1000"])
    assert ahead_module.disk_needs(config, algorithm, warnings)["free"] == 300_000
    assert "most of it is checkpoints: free some space or lower checkpoints.keep" in warnings[0]


def _made(arguments):
    from gaitway.cli.build import build_algorithm, build_env
    from gaitway.cli.compose_run import compose_run

    config, _ = compose_run(arguments)
    with build_env(config) as env:
        return config, build_algorithm(config, env)


class TestRuns:
    @pytest.mark.parametrize("arguments", [PPO, SAC], ids=["ppo", "sac"])
    def test_it_changes_no_bit(self, arguments, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(preflight_module, "SHARE", 1e9)  # so that a tiny run looks ahead at all
        prints, lines = [], []
        for choice in ("true", "false"):
            folder = tmp_path / choice
            assert main(["train", *arguments, f"preflight={choice}", f"run_dir={folder}"]) == 0
            capsys.readouterr()
            assert main(["info", str(folder), "--json"]) == 0
            prints.append(json.loads(capsys.readouterr().out)["parameters_sha256"])
            records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            lines.append([{k: v for k, v in record.items() if not k.startswith("time/")} for record in records])
        assert prints[0] == prints[1]
        assert lines[0] == lines[1]
        report = json.loads((tmp_path / "true" / "preflight.json").read_text())
        assert report["skipped"] == []
        assert report["returns"]["zero"]["mean"] == -1.0
        assert report["duration"]["seconds"] > 0
        assert report["memory"]["needed"] > 0
        assert not (tmp_path / "false" / "preflight.json").exists()
        if arguments is PPO:
            self.check_that_a_task_whose_zero_policy_scores_best_is_called_out(tmp_path / "true")

    def check_that_a_task_whose_zero_policy_scores_best_is_called_out(self, run):
        """Without memory nobody does better in toy/cue than to answer 0."""
        said = [line for line in (run / "run.log").read_text().splitlines() if "WARNING" in line]
        assert len(said) == 2, said
        assert "doing nothing scores best so far, with a return of -1 ± 0" in said[0]
        assert "a third of the run is over, and zero actions are not beaten: at step 256" in said[1]

    def test_a_tiny_run_does_not_pay_for_it(self, tmp_path):
        assert main(["train", *PPO, f"run_dir={tmp_path / 'run'}"]) == 0
        report = json.loads((tmp_path / "run" / "preflight.json").read_text())
        assert [sentence.partition(",")[0].partition(":")[0] for sentence in report["skipped"]] == [
            "the returns of zero and random actions",
            "the duration",
        ]
        assert report["seconds"] < 0.01

    def test_a_dry_run_stops_there(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["train", *PPO, "--dry-run"]) == 0
        told = capsys.readouterr()
        assert "zero actions return -1 ± 0, random actions return -" in told.out
        assert "steps a second" in told.out
        assert "gaitway: warning: doing nothing scores best" in told.err
        assert list(tmp_path.iterdir()) == []
        assert main(["train", *PPO, "--dry-run", "--seeds", "0..1"]) == 1
        assert "--dry-run looks at one run" in capsys.readouterr().err

    def test_an_own_task_that_fails_is_left_to_the_run(self, monkeypatch):
        def broken(purpose, count):
            raise RuntimeError("no second one")

        config = RunnerConfig(total_steps=10**9)
        pace = preflight_module.Pace(0.0, 0.0, 1e-3)
        report = preflight_module.Preflight(config, SPEC, 1, pace).measure(broken, None)
        assert report.skipped == ["the rest: no second one"]
        assert report.duration["seconds"] is None

    def test_what_learning_takes_at_least_makes_room_for_looking_ahead(self):
        """A core does not learn faster than 40 operations a nanosecond: six for each parameter, sample and pass."""
        config, algorithm = _made(["env.id=toy/cue", "total_steps=1e6", "algorithm.epochs=4"])
        count = sum(each.numel() for each in algorithm.policy.parameters())
        least = ahead_module.least_learning_s(config, algorithm.policy)
        assert least == pytest.approx(6 * count * 4 * 1e6 / 40e9)
        pace = preflight_module.Pace(0.0, 0.0, 0.0, learning_s=100.0)
        assert 1.9 < preflight_module.Preflight(RunnerConfig(total_steps=8), SPEC, 8, pace).left <= 2.1

    def test_memory_is_checked_as_a_whole(self, monkeypatch):
        monkeypatch.setattr(ahead_module, "free_memory", lambda device: 1000)
        config, algorithm = _made(["env.id=toy/cue"])
        with make_env("toy/cue", num_envs=1) as env, pytest.raises(ConfigError, match=r"lower env.num_envs or the"):
            ahead_module.memory_needs(config, env, algorithm)

    def test_evaluations_on_a_device_are_counted_by_what_they_take_there(self, monkeypatch):
        config, algorithm = _made(["env.id=toy/cue"])
        with make_env("toy/cue", num_envs=1) as env:
            parts = ahead_module.memory_needs(config, env, algorithm)["parts"]
            assert parts["the environment of evaluations"] == 10 * env.instance_bytes()
            monkeypatch.setattr(env, "device_bytes", lambda: 7_000)
            parts = ahead_module.memory_needs(config, env, algorithm)["parts"]
            assert parts["the environment of evaluations"] == 10 * 7_000
