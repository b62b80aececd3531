# Short names of the commands in CONTRIBUTING.md. `just` lists them.

[private]
default:
    @just --list

# Build the Rust module into .venv; again after each change in rust/
develop:
    test -d .venv || python3 -m venv .venv
    .venv/bin/pip install -e '.[dev]'

# Format all code
format:
    cargo fmt --all
    .venv/bin/ruff check --fix
    .venv/bin/ruff format

# Check format, licences and the files of the project
lint:
    tests/run.sh lint

# Format, lint, and the tests of every decision
core:
    tests/run.sh core

# Types, and the package without vLLM
package *OPTIONS:
    tests/run.sh package {{ OPTIONS }}

# The adapter in vLLM, and vLLM's engine
vllm *OPTIONS:
    tests/run.sh vllm {{ OPTIONS }}

# The same traffic through vLLM's manager and kvoxide's
proof *OPTIONS:
    tests/run.sh proof {{ OPTIONS }}

# The site of docs, in target/site, and the tests of its pages
docs:
    tests/run.sh docs

# Instructions of hot paths, and speed compared with vLLM
speed:
    tests/run.sh speed

# All tests that need no vLLM
quick *ARGUMENTS:
    tests/run.sh quick {{ ARGUMENTS }}

# Every test; a change has to pass them
test *ARGUMENTS:
    tests/run.sh {{ ARGUMENTS }}

# Tests that take hours
long *PARTS:
    tests/run.sh long {{ PARTS }}

# Build, audit and test a wheel for this machine
wheel *PYTHONS:
    tests/wheel.sh {{ PYTHONS }}
