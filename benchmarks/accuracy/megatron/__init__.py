"""`--strategy megatron` beside what Megatron-LM itself logged.

jobs     one rank of a job replayed
golden   Megatron-LM's own regression values: the last rank's peak
others   arguments of what is no plain GPT, and what is built of them: `encoders/`, `hybrids/`, `overlapped`
sharded  Megatron-FSDP's, from those of whole replicas
left     why some of them are not scored
routing  how many tokens came to a rank's experts, by what it says itself
b200     every rank of runs on eight B200
report   both as a page: `python -m benchmarks.accuracy.megatron.report FOLDER`
"""
