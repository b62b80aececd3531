"""vLLM's engine on the CPU, with its own manager and with kvoxide's: what it schedules, answers,
counts and publishes is the same."""
