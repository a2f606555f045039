"""Datasets as agents."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gaitway.core.agent import Agents
from gaitway.core.workspace import Workspace
from gaitway.data.dataset_agents import DataLoaderAgent, ShuffledDatasetAgent


class Items(Dataset):
    """Item i is made by a function of i."""

    def __init__(self, size, make):
        self.size, self.make = size, make

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        assert type(index) is int
        return self.make(index)


def pairs(size=10):
    return TensorDataset(torch.arange(float(size))[:, None], 10 * torch.arange(size))


class TestShuffled:
    def test_bug_34_it_draws_from_its_own_generator_from_the_start(self):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        ws = Workspace()
        ShuffledDatasetAgent(pairs(), 6)(ws)  # unseeded
        assert ws["x"].shape == (1, 6, 1)
        assert torch.equal(torch.get_rng_state(), before)

    def test_same_seed_same_sequence(self):
        def sequence(agent):
            ws = Workspace()
            for t in range(4):
                agent(ws, t)
            return ws["y"]

        first = sequence(ShuffledDatasetAgent(pairs(), 5, seed=3))
        assert torch.equal(sequence(ShuffledDatasetAgent(pairs(), 5, seed=3)), first)
        assert torch.equal(sequence(ShuffledDatasetAgent(pairs(), 5).seed(3)), first)
        assert not torch.equal(sequence(ShuffledDatasetAgent(pairs(), 5, seed=4)), first)
        assert not torch.equal(first[0], first[1])

    def test_items_stay_together_and_all_of_them_occur(self):
        ws = Workspace()
        ShuffledDatasetAgent(pairs(), 300, seed=0)(ws)
        assert torch.equal(10 * ws["x"].squeeze(-1).long(), ws["y"])
        assert ws["y"].unique().tolist() == [10 * i for i in range(10)]  # both ends possible

    @pytest.mark.parametrize(
        ("make", "names", "expected"),
        [
            (lambda i: (i, i / 2, i > 4), ("n", "half", "large"), (torch.int64, torch.float32, torch.bool)),
            (lambda i: {"n": i, "half": i / 2}, ("n", "half"), (torch.int64, torch.float32)),
            (lambda i: {"a": i, "b": i / 2, "c": 0}, {"a": "n", "b": "half"}, (torch.int64, torch.float32)),
            (lambda i: i, ("n",), (torch.int64,)),
            (lambda i: (np.int32(i), np.array([i / 2])), ("n", "half"), (torch.int64, torch.float32)),
            (lambda i: np.full((2, 2), i, dtype=np.uint8), ("n",), (torch.uint8,)),
            (lambda i: torch.full((2,), i, dtype=torch.float64), ("n",), (torch.float64,)),
        ],
    )
    def test_items_of_every_form(self, make, names, expected):
        ws = Workspace()
        agent = ShuffledDatasetAgent(Items(10, make), 20, names, seed=0)
        agent(ws)
        assert agent.writes == tuple(ws.keys())
        assert tuple(ws[name].dtype for name in ws) == expected
        assert all(ws[name].shape[:2] == (1, 20) for name in ws)
        if "half" in ws:
            assert torch.equal(ws["half"].flatten(), ws["n"].flatten() / 2)
        assert len(ws["n"].unique()) > 1

    def test_many_items_at_once_where_the_dataset_can(self):
        class Several(Items):
            def __getitems__(self, numbers):
                return [(-number, 0) for number in numbers]

        ws = Workspace()
        ShuffledDatasetAgent(Several(5, lambda i: pytest.fail("one by one")), 8)(ws)
        assert ws["x"].min() < 0

    def test_arguments(self):
        for batch_size, size in ((0, 3), (3, 0)):
            with pytest.raises(ValueError, match="both must be positive"):
                ShuffledDatasetAgent(pairs(size), batch_size)
        for names in ("xy", (), ("x", "x")):
            with pytest.raises(ValueError, match="output_names"):
                ShuffledDatasetAgent(pairs(), 3, names)
        with pytest.raises(ValueError, match="2 unnamed parts"):
            ShuffledDatasetAgent(pairs(), 3, ("x",))(Workspace())
        with pytest.raises(KeyError, match="not \\['y'\\]"):
            ShuffledDatasetAgent(Items(3, lambda i: {"x": i}), 3)(Workspace())
        with pytest.raises(TypeError, match="str"):
            ShuffledDatasetAgent(Items(3, lambda i: "word"), 3, ("x",))(Workspace())


class TestLoader:
    def test_bug_35_one_pass_with_a_smaller_last_batch_and_no_ops_after_it(self):
        agent, ws, seen = DataLoaderAgent(DataLoader(pairs(5), batch_size=2)), Workspace(), []
        agent(ws)
        while not agent.finished():
            assert ws["x"].shape == (1, len(ws["y"][0]), 1)
            seen.append(ws["y"][0].tolist())
            agent(ws)
        assert seen == [[0, 10], [20, 30], [40]]
        for _ in range(2):
            agent(ws)
        assert ws["y"].tolist() == [[40]]  # nothing is written any more
        assert agent.finished()
        agent.restart()
        assert not agent.finished()
        agent(ws)
        assert ws["y"].tolist() == [[0, 10]]

    def test_any_iterable_of_batches(self):
        agent, ws = DataLoaderAgent([{"a": [1, 2]}, {"a": np.array([0.5])}], {"a": "data/a"}), Workspace()
        agent(ws)
        assert ws["data/a"].tolist() == [[1, 2]]
        agent(ws)
        assert ws["data/a"].dtype is torch.float32
        with pytest.raises(ValueError, match="single number"):
            DataLoaderAgent([1], ("x",))(ws)

    def test_a_copy_begins_its_own_pass(self):
        agent, ws = DataLoaderAgent(DataLoader(pairs(5), batch_size=2)), Workspace()
        agent(ws)
        twin = agent.clone()
        twin(ws)
        assert ws["y"].tolist() == [[0, 10]]
        agent(ws)
        assert ws["y"].tolist() == [[20, 30]]


@pytest.mark.parametrize("make", [lambda: ShuffledDatasetAgent(pairs(), 3), lambda: DataLoaderAgent([(1.0, 2)])])
class TestBoth:
    def test_bug_36_the_device_is_no_parameter(self, make):
        agent = make()
        assert list(agent.parameters()) == []
        assert agent.state_dict() == {}
        ws = Workspace()
        if isinstance(agent, DataLoaderAgent):
            agent.loader = [(torch.zeros(3), torch.zeros(3))]
        Agents(agent).to("meta")(ws, 0)
        assert {ws[name].device.type for name in ws} == {"meta"}

    def test_bug_19_the_prefix_is_honoured(self, make):
        agent, ws = make().with_prefix("train/"), Workspace()
        if isinstance(agent, DataLoaderAgent):
            agent.loader = [(torch.zeros(3), torch.zeros(3))]
        agent(ws, 0)
        assert agent.writes == tuple(ws.keys()) == ("train/x", "train/y")
