"""A PPO iteration with memory (LSTM 256) and without physics on a GPU, against rsl_rl's recurrent models.

    python benchmarks/gpu_recurrent_ppo.py --out benchmarks/results/gpu_recurrent_ppo.json

The workload of gpu_ppo.py with an LSTM of 256 in front of each network and 2 % of steps ending an episode, so that
memories are emptied inside the sequences that are learnt from.
"""

from __future__ import annotations

from _gpu import options
from _ppo_iteration import Sizes, main

if __name__ == "__main__":
    main("gpu_recurrent_ppo", Sizes(memory=256), options(__doc__))
