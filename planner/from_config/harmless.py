"""Keys that change neither memory nor time of a step: rates, schedules, data's names, reports, checkpoints on disk.

What is not here, and has no meaning for a plan, is told apart as not understood. Names are those of transformers'
TrainingArguments, trl, axolotl, LLaMA-Factory, ms-swift, torchtune, torchtitan, litgpt, unsloth, Accelerate, DeepSpeed.
"""

import re

from gpu_plan.planner.from_config.deciding import DECIDING

_LISTED = """
    seed data_seed shuffle debug strict report_to run_name push_to_hub resume_from_checkpoint overwrite_output_dir
    output_dir out_dir dump_folder description do_train do_eval do_predict learning_rate lr min_lr base_lr
    weight_decay betas beta1 beta2 eps epsilon adam_beta1 adam_beta2 adam_epsilon lora_alpha alpha use_rslora
    loraplus_lr_ratio warmup_ratio warmup_steps num_warmup_steps lr_scheduler lr_scheduler_type lr_scheduler_kwargs
    cosine_min_lr_ratio num_train_epochs num_epochs epochs max_steps max_steps_per_epoch steps total_steps
    max_samples save_steps save_strategy save_total_limit save_only_model save_safetensors saves_per_epoch
    evals_per_epoch eval_steps eval_strategy evaluation_strategy val_set_size val_size eval_table_size
    early_stopping_patience split_dataset_ratio ddp_timeout local_rank tf32 logging_steps logging_strategy
    logging_first_step log_level log_every_n_steps log_freq log_interval disable_tqdm include_tokens_per_second
    remove_unused_columns plot_loss overwrite_cache preprocessing_num_workers dataset_num_proc dataset_processes
    dataloader_num_workers num_workers dataloader_pin_memory dataloader_prefetch_factor train_on_inputs
    train_on_completions mask_prompt dataset_prepared_path dataset dataset_name dataset_config dataset_mixture
    dataset_mixer dataset_splits datasets test_datasets dataset_dir dataset_train_split dataset_test_split
    dataset_text_field dataset_kwargs dataset_path dataset_id_or_path dataset_mixer_list dataset_mix_dir
    eval_dataset train_dataset train_file data_path data_files template chat_template chat_template_jinja eos_token
    eot_tokens pad_token tokenizer tokenizer_name tokenizer_name_or_path tokenizer_type tokenizer_use_fast
    use_slow_tokenizer use_fast_tokenizer tokenizer_dir model_revision revision model_type trust_remote_code
    hf_use_auth_token cache_dir access_token assistant_only_loss completion_only_loss ignore_data_skip with_tracking
    checkpointing_steps keep_last_n_checkpoints metric_logger log_peak_memory_stats initial_validation model_name
    model_author system average_tokens_across_devices save_adapter_weights_only prediction_loss_only
    metric_for_best_model greater_is_better load_best_model_at_end steps_per_print flops_profiler dump_state
    zero_allow_untested_optimizer tensorboard csv_monitor loss_scale initial_scale_power loss_scale_window
    hysteresis min_loss_scale auto_cast max_samples_per_ds stage3_gather_16bit_weights_on_model_save
    stage3_gather_fp16_weights_on_model_save gpu_ids same_network downcast_bf16 rdzv_backend main_training_function
    machine_rank main_process_ip main_process_port enable_cpu_affinity tpu_env tpu_name tpu_zone tpu_use_cluster
    tpu_use_sudo command_file commands zero3_init_flag zero3_save_16bit_model deepspeed_multinode_launcher
    deepspeed_hostfile transformer_layer_cls_to_wrap state_dict_type cpu_ram_efficient_loading sync_module_states
    min_num_params transformer_cls_names_to_wrap logger_name checkpointer profiler random_seed logging device
    tokenizer_path collate_fn seed_for_shuffle job profiling metrics checkpoint validation comm scheduler data eval
    inference resume init_args lr_warmup_steps max_tokens max_train_samples skip_prepare_dataset low_cpu_mem_usage
    auto_resume_from_checkpoints low_cpu_ram sample_backend max_new_tokens dialogue_template ec2_instance_type
    iam_role_name prescale_gradients use_loftq eta_min revision_of_model add_bos preprocessing_batch_size
    hub_model_id optimizer_params init_config batching_workers dist_timeout dataloader persistent_workers pin_memory
    custom_chat_template shuffle_dataset log_completions warmup_num_steps warmup_min_lr warmup_max_lr
    total_num_steps
"""
_KEPT = frozenset((
    "eval_batch_size", "per_device_eval_batch_size", "eval_accumulation_steps", "eval_packing", "deterministic",
    "fp16_master_weights_and_grads", "bf16_full_eval", "fp16_full_eval", "eval_sequence_len", "async_mode",
    "packed", "mode",
    *DECIDING,
))  # fmt: skip
"""Words that change something whatever they begin with, and wherever they stand."""
_WORDS = frozenset(_LISTED.split())
_PATTERNS = re.compile(
    r"^(fsdp_)?(wandb|hub|mlflow|swanlab|comet|trackio|logging|save|hf_hub|push_to_hub|tensorboard|use_wandb"
    r"|enable_wandb|enable_tensorboard|dataset|eval|warmup|lr_scheduler|tpu|report|neptune)_"
)
_TABLES = re.compile(
    r"^(scheduler|lr_scheduler|logging|inference|profil(er|ing)|metrics|comm|checkpoint|validat(ion|or)|eval|data"
    r"|dataset|datasets|dataloader|job|metric_logger|checkpointer|tokenizer|wandb|tensorboard|csv_monitor"
    r"|flops_profiler|log|lr_warmup\w*|optimizer\.params)\."
    r"|^fp8_config\.(fp8_)?(margin|interval|format|amax_\w+)$"
    r"|^debug\.(seed|print_config|save_config_file|enable_structured_logging|deterministic_warn_only)$"
)
"""Tables with little else in them, and what is such of two that have more."""


def harmless(key: str) -> bool:
    """Whether a key, as `passed_over` names it, changes neither memory nor time of a step."""
    name = key.rpartition(": ")[2]
    last = name.rpartition(".")[2]
    last = last.removeprefix("fsdp_") if last.startswith("fsdp_") else last
    if last in _KEPT:
        return False
    return last.startswith("_") or last in _WORDS or bool(_PATTERNS.match(last) or _TABLES.match(name))
