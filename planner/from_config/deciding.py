"""Words that decide memory wherever they stand: batches, lengths, types, ranks, degrees."""

_DECIDING = """
    batch_size micro_batch_size train_batch_size train_micro_batch_size per_device_batch_size
    per_device_train_batch_size local_batch_size device_batch_size mini_batch_size global_batch_size
    grad_accum grad_accum_steps gradient_accumulation gradient_accumulation_steps accumulate_grad_batches
    max_length max_len max_seq_len max_seq_length seq_len seq_length sequence_len sequence_length cutoff_len
    context_length block_size bf16 fp16 dtype torch_dtype compute_dtype precision mixed_precision use_bf16 use_fp16
    load_in_4bit load_in_8bit lora_r lora_rank optim optimizer gradient_checkpointing use_gradient_checkpointing
    activation_checkpointing tp_size ep_size pp_size n_layer n_layers num_layers n_embd d_model hidden_size
    target_modules use_qlora use_lora
"""
DECIDING = frozenset(_DECIDING.split())
"""What decides memory wherever it stands: a reader that knows none of a file's such words reads another tool's file."""
