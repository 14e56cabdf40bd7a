"""The commands: each reads its options, calls one handler and prints the text it returns."""
