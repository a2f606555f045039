"""Rows of the acceptance table that arithmetic decides: the tests of each, its mutations among them or within them.

`make test` runs most of them, `gaitway bench robot_learning ID` all of them, and keeps what came of every one.
"""

TESTS: dict[str, tuple[str, ...]] = {
    "T-GAE": (
        "functional/test_returns.py::test_known_numbers",
        "functional/test_returns.py::test_mutations_give_other_numbers",
    ),
    "T-TIMEOUT": (
        "algorithms/test_ppo.py::test_a_time_limit_is_not_an_end",
        "algorithms/test_ppo.py::test_a_time_limit_by_the_fixed_point",
        "algorithms/test_ppo.py::test_withheld_time_outs_give_the_wrong_value",
    ),
    "T-TIMEOUT-2": ("algorithms/test_ppo.py::test_timeout_2_the_target_uses_the_final_observation",),
    "T-RATIO": (
        "algorithms/test_ppo.py::test_ratio_is_one_before_the_first_step",
        "algorithms/test_ppo.py::test_ratio_sees_every_broken_twin",
        "agents/test_conv_encoder.py::test_sizes_and_the_ratio_of_every_step_is_one",
        "agents/test_estimator.py::TestReplacement::test_the_stored_mask_is_the_one_that_is_learnt_from",
        "behaviour/test_parts_together.py::test_the_ratio_of_every_step_is_one_and_twins_are_seen",
        "data/test_rollout.py::test_a_number_that_does_not_divide_is_refused_with_one_that_does",
    ),
    "T-LR": (
        "algorithms/test_ppo.py::test_adaptive_rate_follows_the_rule",
        "algorithms/test_ppo.py::test_adaptive_rate_sees_broken_rules",
        "algorithms/test_ppo.py::test_adaptive_rate_survives_a_checkpoint",
    ),
    "T-NORMADV": (
        "algorithms/test_ppo.py::test_advantages_are_normalised_where_asked",
        "algorithms/test_ppo.py::test_advantages_1_to_4_are_normalised_by_the_unbiased_deviation",
        "algorithms/test_symmetry.py::test_advantages_are_standardised_before_images_are_added",
    ),
    "T-REC": (
        "algorithms/test_ppo.py::test_memory_solves_the_cue",
        "algorithms/test_ppo.py::test_without_memory_the_cue_cannot_be_solved",
        "algorithms/test_ppo.py::test_memory_of_another_environment_does_not_solve_the_cue",
    ),
    "T-METRIC": (
        "envs/legged/test_metrics.py::test_t_metric_cost_of_transport_falls_and_slip",
        "envs/legged/test_metrics.py::test_t_metric_work_is_counted_joint_by_joint",
        "runners/test_judge.py::test_a_trial_is_told_of_evaluations_and_ends_a_run_that_stays_playable",
    ),
    "T-AMP-D": (
        "functional/test_adversarial.py::test_amp_d_is_tanh",
        "functional/test_adversarial.py::test_amp_d_sees_broken_twins",
        "functional/test_adversarial.py::test_amp_d_of_equal_distributions",
    ),
    "T-AMP-GP": (
        "functional/test_adversarial.py::test_amp_gp_of_a_linear_discriminator",
        "functional/test_adversarial.py::test_amp_gp_sees_broken_twins",
    ),
    "T-SCHED": (
        "core/test_schedules.py::test_schedules_of_a_teachers_share",
        "agents/test_teacher.py::test_the_share_of_episodes_is_the_probability",
        "agents/test_teacher.py::test_probability_0_never_lets_the_teacher_drive",
    ),
    "T-TPPO-B": (
        "agents/test_teacher.py::test_log_probabilities_are_those_of_what_was_executed",
        "agents/test_teacher.py::test_a_record_of_the_sample_is_seen",
    ),
    "T-FORMS": (
        "functional/test_imitation.py::test_values_and_gradients",
        "functional/test_imitation.py::test_broken_forms_are_seen",
        "algorithms/test_imitation.py::test_every_form_by_hand",
        "algorithms/test_imitation.py::test_an_unknown_form_in_a_configuration_is_told_with_its_key",
    ),
    "T-RESAMPLE": (
        "algorithms/test_distillation.py::test_noise_takes_the_place_of_whole_memories",
        "algorithms/test_distillation.py::test_noise_along_the_wrong_axis_is_seen",
        "algorithms/test_distillation.py::test_without_noise_no_bit_changes",
    ),
    "T-ATPPO": ("behaviour/test_parts_together.py::test_labels_beside_a_discriminator_are_the_teachers",),
    "T-EST-G": (
        "agents/test_estimator.py::TestGradients::test_apart",
        "agents/test_estimator.py::TestGradients::test_behind_the_actors_memory",
        "agents/test_estimator.py::TestGradients::test_a_missing_detach_is_seen",
    ),
    "T-DIST": (
        "algorithms/test_distillation.py::test_the_number_of_gradient_steps",
        "algorithms/test_distillation.py::test_broken_walks_are_seen",
        "agents/test_teacher.py::test_a_teacher_is_frozen",
    ),
    "T-MUTEX": (
        "agents/test_mutex.py::TestWhoActs::test_a_switch_by_hand",
        "agents/test_mutex.py::TestWhoActs::test_a_ring_that_is_not_normalised_is_seen",
        "agents/test_mutex.py::TestWhatChildrenRead::test_writing_into_the_callers_tensors_is_seen",
        "agents/test_mutex.py::TestMemories::test_those_of_the_unselected",
    ),
    "T-QUEUE": (
        "data/test_rolling_rollout.py::test_lengths_and_content",
        "data/test_rolling_rollout.py::test_the_twin_that_rotates_fields_differently_is_found",
        "data/test_rolling_rollout.py::test_what_follows_is_never_a_row_that_was_not_written",
    ),
    "T-SPLIT": (
        "functional/test_sequences.py::test_round_trip_is_bitwise",
        "functional/test_sequences.py::test_mutations_fail",
    ),
    "T-REPLAY": ("data/test_replay.py::TestRing::test_t_replay",),
    "T-NORM": (
        "nn/test_normalise.py::test_known_numbers",
        "nn/test_normalise.py::test_mutations_give_other_numbers",
        "nn/test_normalise.py::test_until_stops_after_the_batch_that_reaches_it",
        "nn/test_normalise.py::test_merging_equals_one_stream",
    ),
    "T-FILES": (
        "data/test_cursors.py::TestFiles::test_a_recorder_that_is_killed_loses_the_open_chunk_alone",
        "data/test_codecs.py::test_bytes_round_to_the_nearest",
        "data/test_parkour_datasets.py::TestHostile",
    ),
    "T-RESUME": (
        "behaviour/test_resume.py::test_resume_is_exact",
        "behaviour/test_resume.py::test_a_checkpoint_that_lacks_something_is_not_exact",
        "behaviour/test_every_part.py::test_every_part_everywhere",
        "behaviour/test_parts_together.py::test_every_pair_trains_and_resumes_bit_for_bit",
    ),
    "T-COMPILE": (
        "algorithms/test_compile.py::test_the_compiled_update_equals_the_eager_one_and_compiles_once",
        "algorithms/test_compile.py::test_no_host_synchronisation_in_the_minibatch_loop",
        "algorithms/test_compile.py::test_a_term_that_looks_at_its_value_is_caught",
    ),
    "T-LOADMAP": (
        "agents/test_transfer.py::TestRules::test_a_replaced_encoder_leaves_the_critics",
        "agents/test_transfer.py::test_the_twins_that_ignore_names_differ",
    ),
    "T-STACK": ("agents/test_estimator.py::TestStack",),
    "T-SHARED": ("agents/test_conv_encoder.py::TestOnePass",),
    "T-GROUPS": (
        "algorithms/test_reward_streams.py::test_each_critic_has_its_own_discount_trace_and_ends",
        "algorithms/test_reward_streams.py::test_broken_twins_are_seen",
    ),
    "T-PRIVATE": (
        "behaviour/test_every_part.py::test_every_part_everywhere",
        "export/test_export.py::TestKinds::test_a_component_that_an_estimate_replaces_may_be_anything",
    ),
    "frozen discriminator": ("rewards/test_style.py::test_broken_twins_reward_half_the_amplitude",),
    "trained RND target": ("rewards/test_novelty.py::test_the_target_never_changes",),
    "identity mirror": ("algorithms/test_symmetry.py::test_what_has_no_mirror_image_is_refused",),
    "teacher whose hash moves": ("agents/test_teacher.py::test_a_teacher_that_moves_is_seen",),
}
"""By id; paths are those below `tests/`."""
