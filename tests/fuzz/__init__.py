"""Coverage-guided fuzzing of what distrain reads from others: `make fuzz`.

`decoder`, `presets` and `records` are the targets: each has `check`, which raises for an input that
is not handled as documented, `mutate` and `seeds`. `worker` runs one of them under Atheris,
`__main__` all of them, and `page` writes docs/fuzzing.md. corpus/ has the inputs that reach
different code, found/ those that once were handled wrongly.
"""
