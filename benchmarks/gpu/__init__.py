"""The parts of `measure_gpu` and `compare_gpu`: cases, loop, models, memory; estimates and causes beside them."""
