"""The page for people who come from HSD-3 names what its system has, and nothing that does not exist here."""

import re
from pathlib import Path

from gaitway.cli.train_config import RECIPES

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "gaitway"
PAGE = (ROOT / "docs" / "from_hsd3.md").read_text()

THEIRS = {
    "drivers": """
        pretrain train training_state set_checkpoint_fn SIGUSR1 auto_adapt episodes_per_task default sum max min final
        score episode_length return_undisc return_disc viz st sg sgd _abs task_map goal_dims cperf cperf_r cperf_q
        cperf_running cperf_eval
    """,
    "features and goal spaces": """
        Walker Humanoid HumanoidPC Featurizer physics prefix exclude observation_space feature_names __call__
        set_frame_of_reference relative_frame_of_reference bodyfeet relz joints sensorsnoc native psi offset proj_pi
        delta_feats twist_feats subsets_task_map all torso
        BiskHurdles BiskLimbo BiskHurdlesLimbo BiskGaps BiskStairs BiskGoalWall BiskPoleBalance
        next_hurdle next_bar next_obstacle next_gap_platform next_steps ball pole
    """,
    "pre-training environment": """
        ContCtrlgsPreTraining robot features feature_dist precision idle_steps max_steps backproject_goal reward
        potential potential2 potential3 potential4 distance sparse hard_reset_interval reset_p resample_features hard
        soft softN full_episodes allow_fallover fallover_penalty implicit_soft_resets goal_sampling random uniform r r2
        q ctrl_cost normalize_gs_observation zero_twist_goals set_feature_dist set_goal_dims set_model observation
        desired_goal task gs_observation reached_goal time fell_over EpisodeContinues LastStepOfTask RandomReset
        SoftReset TimeLimit truncated backprop_fallover
    """,
    "agents": """
        Agent action step update ctx training n_samples n_steps n_updates effective_observation_space
        effective_action_space randexp_samples warmup_samples samples_per_update num_updates polyak clip_grad_norm
        discounted_bwd_cumsum_ gae_advantage normalize batch_2to1 clampt
        sac flatten_obs target_entropy target_entropy_factor
        sacmt per_task_alpha ignore_eoe start_state last_step_of_task task_key terminal auto_horizon reachability
        update_fdist eval_mode rollouts running_avg q_value task_weighting lp lp_smooth lp_eps lp_new_task downrank
        downrank_new downrank_combined tderr max_new_tasks combine_after_steps ctrl_eps feature_rank feature_rank_max
        estimate_joint_spaces
        hsd3 HiToLoInterface from_lo from_lo_eps rank_min rank_max n_d max_rank ng subgoal_idxs psi_by_ss psi_1_by_ss
        offset_by_ss offset_1 obs_mask task_idx action_mask_hi mask_feats translate delta_actions update_bp_subgoal
        observation_lo observation_hi gs_obs dist_lo reward_lo log_goal_spaces gamma_exp not_done dyne_updates
        expectation_d full alpha_c alpha_d optim_alpha_c target_entropy_factor_c target_entropy_factor_d pi_task
        pi_subgoal _model _goal_space
        hsdb reward_acc sacse n_models c_switch sachrl n_actions_hi hi_action hide_from_lo
        hiro range_min range_max feature_subset lo_obs normalize_reward_lo ctrl_cost_lo fallover_penalty_lo action_lo
        action_hi diayn n_skills phi phi_obs phi_obs_feats add_p_z n_embed
    """,
    "models": """
        th_flatten th_unflatten GaussianFromEmbedding GaussianFromMuLogStd MHGaussianFromEmbedding
        CategoricalFromEmbedding TransformDistribution SkipNetwork SkipDoubleQNetwork GroupedLinear EinsumBilinear
        BilinearSkipNetwork norm_cond SplitTaskInput ExpandTaskSubgoal EmbedDiscreteSkill FlattenSpace Parallel
        SqueezeLastDim make_model pi_d2rl_256 pi_d2rl_d_1024 pi_d2rl_mt_d_256 pi_d2rl_discrete_d_256 q_d2rl_d_1024
        qd_d2rl_256 qd_d2rl_d_256 qd_d2rl_d_1024 qd_d2rl_flattsg_d_256 qd_relu_d_3x256 qd_relu softplus sigmoid
        pi_bilinear_d2rl_d_256 q_bilinear_d2rl_d_256 double_q pi_diayn_cskill phi_diayn_d2rl_256 TracedModule trace
        Bandit UniformBandit EpsGreedyBandit UCBBandit DiscountedUCBBandit SlidingWindowUCBBandit Agent57Bandit
        ThompsonBandit sample_action best_action dist beta window eps gamma bandit_task
    """,
    "infrastructure": """
        ReplayBuffer size interleave put_row get_batch _idx get_batch_where get_trajs pop_row_front get_batch_back clear
        save load priority_key stack_obs HashingCountReward obs_dim dim_key compute_keys inc_hash_keys inc_hash
        query_hash predict_keys predict to_ dump_state_counts
        AsyncVectorEnv fork reset_if_done reset_async reset_wait step_async step_wait _poll close_extras
        _assert_is_running _raise_if_errors _check_observation_space VecPyTorch num_envs device seed call render_single
        render_all dict_obs frame_counter time_limit bisk_features push plot close draw_text video_encode make_optim
        fuse _target_ dim_select sorted_nicely sorted_nicely_sep
    """,
    "keys": """
        log_level checkpoint_path keep_all_checkpoints name train_procs eval_procs args train_args eval_args wrappers
        interval metrics video record_all length annotations visdom host port offline logfile slurm hydra goal_space
        subsets action_interval horizon feature_dims init_model_from distributed num_actors num_learners rdvu_path key
        init_from model optim mujoco
    """,
    "log tags": """
        Loss/Policy Loss/QValue Loss/Reachability Loss/Discriminator LossHi/* LossLo/* Health/Entropy Health/Alpha
        Health/MeanAlpha Health/GradNorms Health/AbsTDErrorMean HealthHi/EntropyC HealthHi/EntropyD HealthHi/AlphaC
        HealthHi/AlphaD HealthHi/ResidualVariance1 HealthHi/ResidualVariance2 HealthHi/AbsTDErrorTrain HealthHi/PiD
        Agent/SampledTasks Agent/SamplesPerTask Eval/score Eval/episode_length Eval/return_* Eval/GoalsReached
        Eval/NumTrials Eval/LearningProgress Eval/NewTaskProbs Training/GoalsReached Training/CtrlbEstimateQ
        Training/CtrlbEstimateR Train/UniqueStates
    """,
}
"""What the original has, by part: classes, functions, arguments that a user gives, keys and their values, tags."""
PLACEHOLDERS = {"TASK", "SUBSET", "DIR", "N", "key", "value"}


def rows() -> list[tuple[str, str]]:
    """The rows of all tables: theirs, ours."""
    found = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert {len(cells) for cells in found} == {2}
    return [(theirs, ours) for theirs, ours in found if theirs != "original"]


def quoted(cells: list[str]) -> list[str]:
    return [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]


def test_every_name_of_theirs_is_on_the_left():
    spans = quoted([theirs for theirs, _ in rows()]) + re.findall(r"`(\w+)`", PAGE[PAGE.index("Presets have") :])
    words = set(spans) | {word for span in spans for word in re.findall(r"\w+", span)}
    lacking = {part: [name for name in names.split() if name not in words] for part, names in THEIRS.items()}
    assert {part: names for part, names in lacking.items() if names} == {}


def test_every_row_says_what_is_here_or_why_not():
    for theirs, ours in rows():
        assert re.search(r"[`\w]", ours), theirs
        assert not re.search(r"declined(?!: \w|, | are)", ours.replace("are declined, ", "")), ours


def words_of_the_source() -> set[str]:
    """Every word of the code, docstrings and comments left out; keys of the presets; names of files."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        code = re.sub(r'"""(?s:.*?)"""|  # .*', "", path.read_text())
        found.update(re.findall(r"\w+", code), path.relative_to(SOURCE).with_suffix("").parts)
    for path in (SOURCE / "cli" / "conf").rglob("*.yaml"):
        found.update(re.findall(r"\w+", path.read_text()), [path.stem])
    return found


def test_every_name_of_ours_exists():
    known = words_of_the_source()
    spans = quoted([ours for _, ours in rows()])
    assert len(spans) > 250
    words = {word for span in spans for word in re.findall(r"[A-Za-z_]\w+", span.replace(".py", ""))}
    assert sorted(words - known - PLACEHOLDERS) == []
    assert "GoalInterfaces" not in known  # a name that nobody has is noticed


def test_files_algorithms_presets_and_pages_on_the_page_exist():
    files = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))
    assert len(files) > 10
    assert [name for name in files if not (SOURCE / name).exists()] == []
    algorithms = set(re.findall(r"algorithm=(\w+)", PAGE))
    assert algorithms <= set(RECIPES)
    assert len(algorithms) >= 7
    presets = set(re.findall(r"`((?:walker|humanoid)_\w+)`", PAGE))
    experiments = SOURCE / "cli" / "conf" / "experiment"
    assert [name for name in presets if not (experiments / f"{name}.yaml").exists()] == []
    assert len(presets) == 13
    pages = set(re.findall(r"\]\((\w+\.md)", PAGE))
    assert [name for name in pages if not (ROOT / "docs" / name).exists()] == []


def test_names_in_brackets_behind_a_file_are_its_own():
    """Such as `SimHash` (`rewards/sim_hash.py`): what stands before the bracket is defined in that file."""
    found = re.findall(r"`(\w+)`(?: and `(\w+)`)? \(`((?:\w+/)+\w+\.py)`\)", PAGE)
    assert len(found) > 6
    for first, second, file in found:
        text = (SOURCE / file).read_text()
        for name in filter(None, (first, second)):
            assert re.search(rf"^(class|def) {name}\b", text, re.MULTILINE), (name, file)
