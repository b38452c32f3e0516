"""Parts of benchmarks/redistribution.py: problems, peers, figures."""
