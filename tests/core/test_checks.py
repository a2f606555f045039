"""`check_transitions`: true streams pass, and every way to spoil one is found where it is."""

import pytest
import torch

from gaitway.core.checks import check_transitions
from gaitway.core.workspace import Workspace


def step_rows(steps=6, batch=2, final=True, reset_rows=False):
    """Column 0 is truncated at row 1, column 1 terminated at row 3; every observation is another number.

    With `reset_rows` the row after an end only resets.
    """
    obs = torch.arange(float((steps + 1) * batch)).reshape(steps + 1, batch, 1)
    terminated, truncated = torch.zeros(2, steps, batch, dtype=torch.bool)
    truncated[1, 0] = terminated[3, 1] = True
    done = terminated | truncated
    tensors = {
        "env/obs/policy": obs,
        "action": torch.zeros(steps, batch, 1),
        "env/reward": torch.linspace(-3, 70, steps * batch).reshape(steps, batch),
        "env/terminated": terminated,
        "env/truncated": truncated,
    }
    if final and not reset_rows:
        tensors["env/final_obs/policy"] = torch.where(done[..., None], -obs[1:], obs[1:])
    if reset_rows:
        tensors["env/valid"] = torch.cat((torch.ones_like(done[:1]), ~done[:-1]))
    return tensors


def frames(mode):
    """The example of two-step episodes with rewards 1 and 5 written on arrival: (episode, step) is 10 e + s."""
    obs, done, reward, timestep = {
        "frozen": ([0, 1, 2, 2, 2, 2], [0, 0, 1, 1, 1, 1], [0, 1, 5, 0, 0, 0], [0, 1, 2, 2, 2, 2]),
        "framed": ([0, 1, 2, 10, 11, 12], [0, 0, 1, 0, 0, 1], [0, 1, 5, 0, 1, 5], [0, 1, 2, 0, 1, 2]),
        "compact": ([0, 1, 10, 11, 20, 21], [0, 0, 1, 0, 1, 0], [0, 1, 5, 1, 5, 1], [0, 1, 2, 1, 2, 1]),
    }[mode]
    tensors = {
        "env/obs/policy": torch.tensor(obs).float()[:, None],
        "action": torch.zeros(6, 1),
        "env/reward": torch.tensor(reward).float()[:, None],
        "env/terminated": torch.tensor(done).bool()[:, None],
        "env/truncated": torch.zeros(6, 1, dtype=torch.bool),
        "env/timestep": torch.tensor(timestep)[:, None],
    }
    if mode == "compact":
        tensors["env/final_obs/policy"] = torch.tensor([0, 1, 2, 11, 12, 21]).float()[:, None]
    return tensors


class TestStepRows:
    def test_bug_13_true_streams_pass_whatever_their_rewards(self):
        assert check_transitions(Workspace.packed(step_rows())) == 12
        assert check_transitions(Workspace.packed(step_rows(reset_rows=True))) == 10  # two rows only reset

    @pytest.mark.parametrize(
        ("name", "row", "column", "value", "words"),
        [
            ("env/reward", 4, 1, float("nan"), "'env/reward' is not finite"),
            ("env/reward", 4, 1, float("inf"), "'env/reward' is not finite"),
            ("env/truncated", 3, 1, True, "terminated and truncated at once"),
            ("env/final_obs/policy", 2, 0, 9.5, "though the episode goes on"),
            ("env/obs/policy", 2, 1, float("nan"), "'env/obs/policy' is NaN"),
            ("action", 0, 0, float("nan"), "'action' is NaN"),
        ],
    )
    def test_the_first_violation_has_its_row_and_column(self, name, row, column, value, words):
        tensors = step_rows()
        tensors[name] = tensors[name].clone()
        tensors[name][row:, column] = value
        with pytest.raises(ValueError, match=f"row {row}, column {column}: .*{words}"):
            check_transitions(Workspace.packed(tensors))

    def test_an_end_that_is_not_flagged_is_found(self):
        tensors = step_rows()
        tensors["env/truncated"] = torch.zeros_like(tensors["env/truncated"])
        with pytest.raises(ValueError, match=r"row 1, column 0: .*goes on"):
            check_transitions(Workspace.packed(tensors))

    def test_an_end_without_its_final_observation_is_found(self):
        with pytest.raises(ValueError, match="column 0 ended at step 1"):
            check_transitions(Workspace.packed(step_rows(final=False)))

    def test_flags_are_bool_and_rewards_one_float_per_row(self):
        tensors = step_rows()
        for name, values, words in (
            ("env/terminated", tensors["env/terminated"].float(), "a flag is bool"),
            ("env/truncated", tensors["env/truncated"][..., None], "a flag is bool"),
            ("env/reward", tensors["env/reward"].long(), "one float per row"),
            ("env/reward", tensors["env/reward"][..., None], "one float per row"),
        ):
            with pytest.raises(ValueError, match=words):
                check_transitions(Workspace.packed(tensors | {name: values}))

    def test_reset_rows_stand_after_ends_and_nowhere_else(self):
        for row, column, value, words in (
            (2, 0, True, "row 2, column 0: 'env/valid' is true, but the row before ended"),
            (3, 0, False, "row 3, column 0: 'env/valid' is false, but no episode ended"),
            (3, 1, False, "row 3, column 1: 'env/valid' is false, so the row only resets"),
        ):
            tensors = step_rows(reset_rows=True)
            tensors["env/valid"][row, column] = value
            with pytest.raises(ValueError, match=words):
                check_transitions(Workspace.packed(tensors))

    def test_a_tolerance_forgives_rounding(self):
        tensors = step_rows()
        tensors["env/final_obs/policy"] = tensors["env/final_obs/policy"] + 1e-6
        with pytest.raises(ValueError, match="row 0, column 0"):
            check_transitions(Workspace.packed(tensors))
        assert check_transitions(Workspace.packed(tensors), tolerance=1e-5) == 12


class TestFrames:
    @pytest.mark.parametrize(("mode", "count"), [("frozen", 2), ("framed", 4), ("compact", 5)])
    def test_the_three_modes_pass(self, mode, count):
        assert check_transitions(Workspace.packed(frames(mode))) == count

    @pytest.mark.parametrize(
        ("mode", "name", "row", "value", "words"),
        [
            ("frozen", "env/obs/policy", 4, 3.0, "row 4, column 0: .*repeats its end"),
            ("compact", "env/final_obs/policy", 3, 3.0, "row 3, column 0: .*no episode ended"),
            ("framed", "env/timestep", 4, 7, "row 4, column 0: .*count on by 1"),
            ("framed", "env/timestep", 3, 3, "row 3, column 0: .*count on by 1"),
            ("framed", "env/truncated", 2, True, "row 2, column 0: .*at once"),
        ],
    )
    def test_the_first_violation_has_its_row(self, mode, name, row, value, words):
        tensors = frames(mode)
        tensors[name][row] = value
        with pytest.raises(ValueError, match=words):
            check_transitions(Workspace.packed(tensors))

    def test_a_stored_done_agrees_with_its_flags(self):
        tensors = frames("framed")
        tensors["env/done"] = tensors["env/terminated"].clone()
        tensors["env/done"][4] = True
        with pytest.raises(ValueError, match="row 4, column 0: 'env/done' is not"):
            check_transitions(Workspace.packed(tensors))


class TestPairs:
    def pairs(self, mode):
        ws = Workspace.cat([Workspace.packed(frames(mode))] * 2)
        return ws.transitions(pairs=True, with_index=True, keep_all=mode == "compact")

    @pytest.mark.parametrize(("mode", "count"), [("frozen", 4), ("framed", 8), ("compact", 10)])
    def test_true_pairs_pass(self, mode, count):
        assert check_transitions(self.pairs(mode)) == count
        shuffled = self.pairs(mode).select(torch.randperm(count, generator=torch.Generator().manual_seed(0)))
        assert check_transitions(shuffled) == count

    def test_bug_13_a_pair_across_a_reset_is_found(self):
        ws = Workspace.packed(frames("framed")).transitions(pairs=True, with_index=True, keep_all=True)
        with pytest.raises(ValueError, match=r"row 2, column 0 \(pair 2\): the pair starts on the end"):
            check_transitions(ws)

    def test_slots_that_do_not_belong_together_are_found(self):
        ws = self.pairs("framed")
        obs = ws["env/obs/policy"].clone()
        obs[1, 0] = 7.0
        ws["env/obs/policy"] = obs
        with pytest.raises(ValueError, match=r"row 0, column 0 \(pair 0\): slot 1 of 'env/obs/policy'"):
            check_transitions(ws)
        ws = self.pairs("framed")
        ws["transition/b"] = torch.stack((ws.at("transition/b", 0), ws.at("transition/b", 1).flip(0)))
        with pytest.raises(ValueError, match="not rows t and t"):
            check_transitions(ws)
        with pytest.raises(ValueError, match="twice"):
            check_transitions(self.pairs("framed").select([0, 1, 0]))


class TestFields:
    def test_fields_pass_with_and_without_their_order(self):
        ws = Workspace.packed(step_rows())
        assert check_transitions(ws.transitions(), columns=2) == 12
        assert check_transitions(ws.transitions()) == 12

    def test_what_is_wrong_is_named(self):
        fields = Workspace.packed(step_rows()).transitions()
        wrong = fields["next_obs/policy"].clone()
        wrong[5] += 1  # row 2, column 1
        with pytest.raises(ValueError, match="row 2, column 1: 'next_obs/policy' is not 'obs/policy'"):
            check_transitions(fields | {"next_obs/policy": wrong}, columns=2)
        reward = fields["reward"].clone()
        reward[4] = float("inf")
        with pytest.raises(ValueError, match="sample 4: 'reward' is not finite"):
            check_transitions(fields | {"reward": reward})
        with pytest.raises(ValueError, match="12 samples are not whole rows of 5"):
            check_transitions(fields, columns=5)
        with pytest.raises(ValueError, match="'obs/policy' has 12 samples but"):
            check_transitions(fields | {"action": fields["action"][1:]})
        with pytest.raises(TypeError, match="named fields"):
            check_transitions(Workspace.packed(step_rows()), columns=2)

    def test_a_bootstrap_across_a_reset_is_found(self):
        # the next observation of the truncated step is taken from the row after it: the start of another episode
        ws = Workspace.packed(step_rows())
        fields = ws.transitions()
        broken = fields | {"truncated": torch.zeros_like(fields["truncated"])}
        with pytest.raises(ValueError, match="row 1, column 0"):
            check_transitions(broken, columns=2)
