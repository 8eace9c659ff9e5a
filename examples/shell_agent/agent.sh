#!/bin/sh
# An agent in ten lines of shell. The prompt comes on stdin, the reply goes to stdout, and the
# conversation is a file of its own for each session: its name is the first argument.
set -eu
mkdir -p conversations
talk=conversations/$(printf %s "$1" | tr -c 'A-Za-z0-9' _).txt
prompt=$(cat)
before=$(grep -c '^you:' "$talk" 2>/dev/null || true)
printf 'you: %s\n' "$prompt" >>"$talk"
printf 'I have been asked %s times before. Now: %s\n' "${before:-0}" "$prompt" | tee -a "$talk"
