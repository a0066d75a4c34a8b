#!/bin/sh
# Generates dbgen from the SQL and writes the hash of what it was made from, which CI compares.
set -eu
cd "$(dirname "$0")"
sqlc generate
cat migrations/*.sql queries/*.sql sqlc.yaml | sha256sum | cut -d' ' -f1 >dbgen/INPUTS.sha256
