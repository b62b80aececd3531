"""Tests of vLLM's engine on the CPU, with vLLM's manager and with kvoxide's. The engine must
schedule, answer, count and publish the same."""
