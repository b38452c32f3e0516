"""Shardwright: an SPMD partitioner for JAX programs that prices every choice."""
